//! Speed of the translator on one thread, stage by stage, and of opening its images. The
//! input is a shared library of the kernels in `tests/bench/kernels`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hartline_abi::image::variant;
use hartline_aot::cache::Cache;
use hartline_aot::image::{self, Image};
use hartline_aot::key::Key;
use hartline_aot::translate::Silent;
use hartline_aot::translator::{Options, Translator};
use std::hint::black_box;
use std::num::NonZero;
use std::path::Path;
use std::process::Command;

/// Extensions that x86-64 servers of the last ten years have.
const FEATURES: &str = "+popcnt,+lzcnt,+bmi,+bmi2,+avx2,+fma,+sse4.2,+movbe";

/// Builds the kernels without a C library, so that the file contains little else.
fn kernels(directory: &Path) -> Vec<u8> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/bench/kernels");
    let library = directory.join("kernels.so");
    let mut compiler = Command::new("riscv64-linux-gnu-gcc");
    compiler.args(["-O2", "-fPIC", "-shared", "-nostdlib", "-o"]);
    compiler.arg(&library);
    for entry in std::fs::read_dir(sources).expect("tests/bench/kernels") {
        let path = entry.expect("tests/bench/kernels").path();
        if path.extension().is_some_and(|extension| extension == "c") {
            compiler.arg(path);
        }
    }
    let status = compiler
        .status()
        .expect("make test-setup installs the compiler");
    assert!(status.success(), "the kernels compile");
    std::fs::read(library).expect("the compiler's output")
}

fn translation(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let elf = kernels(directory.path());
    let mut options = Options::default();
    options.features.push_str(FEATURES);
    options.threads = NonZero::new(1);
    let translator = Translator::new(&elf, &options).expect("the kernels are an ELF file");
    let instructions: usize = translator
        .flow()
        .functions
        .iter()
        .flat_map(|function| &function.blocks)
        .map(|block| block.instructions.len())
        .sum();

    let mut group = criterion.benchmark_group("translator");
    group.throughput(Throughput::Elements(instructions as u64));
    group.bench_function("control flow", |bencher| {
        bencher
            .iter(|| Translator::new(black_box(&elf), &options).map(|t| t.flow().functions.len()));
    });
    group.sample_size(10);
    group.bench_function("translate", |bencher| {
        bencher.iter(|| {
            translator
                .translate(&Silent)
                .expect("the kernels translate")
        });
    });
    group.finish();

    let key = Key::new(&elf, &options.features, "");
    let linked = translator
        .translate(&Silent)
        .expect("the kernels translate");
    let text = translator.binary().text_range();
    let image = image::build(&key, variant::NORMAL, text, &linked).expect("an image");
    let cache = Cache::new(directory.path().join("cache"));
    cache.store(&key, &image).expect("room for the image");

    let mut group = criterion.benchmark_group("image");
    group.throughput(Throughput::Bytes(image.len() as u64));
    group.bench_function("open", |bencher| {
        bencher.iter(|| Image::open(black_box(&image)).map(|image| image.code().len()));
    });
    group.bench_function("look up in the cache", |bencher| {
        bencher.iter(|| cache.lookup(black_box(&key)).expect("it was stored"));
    });
    group.finish();
}

criterion_group!(benches, translation);
criterion_main!(benches);

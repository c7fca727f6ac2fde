//! Translation of a real program, some functions at a time.

use hartline_abi::image::variant;
use hartline_aot::image::{self, Image};
use hartline_aot::key::Key;
use hartline_aot::order::Part;
use hartline_aot::pieces::link_pieces;
use hartline_aot::translator::{Options, Translator};
use std::path::Path;

/// Debian's busybox, which `make test-setup` fetches.
fn busybox() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.debian/riscv64/usr/bin/busybox");
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn pieces_link_with_what_is_there() {
    let elf = busybox();
    let translator = Translator::new(&elf, &Options::default()).unwrap();
    let compiler = translator.compiler(None).unwrap();
    let key = Key::new(&elf, "", "");
    let text = translator.binary().text_range();
    let entries: Vec<u64> = translator
        .flow()
        .functions
        .iter()
        .map(|f| f.entry)
        .collect();
    let mut pieces = Vec::new();
    // The functions are from the middle, so that most callees are missing at first.
    for indices in [vec![1000, 1001], vec![2000], (1002..1030).collect()] {
        let parts: Vec<Part> = indices.into_iter().map(Part::whole).collect();
        pieces.push(compiler.compile(&parts).unwrap());
        let linked = link_pieces(&pieces, &text).unwrap();
        let file = image::build(&key, variant::NORMAL, text.clone(), &linked).unwrap();
        let image = Image::open(&file).unwrap();
        let translated: Vec<u64> = pieces.iter().flat_map(|p| p.functions.clone()).collect();
        let listed: Vec<u64> = image.functions().map(|function| function.guest).collect();
        assert!(translated.iter().all(|entry| listed.contains(entry)));
        // Only translated functions are listed, besides resume points in loops.
        let others = listed.iter().filter(|entry| entries.contains(entry));
        assert_eq!(others.count(), translated.len());
    }
    assert!(
        compiler
            .compile(&[Part::whole(usize::MAX)])
            .unwrap()
            .functions
            .is_empty()
    );
}

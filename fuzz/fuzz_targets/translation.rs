//! Makes an ELF file of random code and lifts its functions. LLVM's verifier accepts the result,
//! optimises it and emits code, and the linker makes an image of it.
//!
//! The test `instructions` compares the code's results with the interpreter's in a VM.

#![no_main]

mod program;

use hartline_aot::codegen::Codegen;
use hartline_aot::image::{Image, build};
use hartline_aot::jit::{JitCode, JitTranslation, optimise_jit};
use hartline_aot::key::Key;
use hartline_aot::lift::{Ir, Naming, lift};
use hartline_aot::translate::Silent;
use hartline_aot::translator::{Options, Translator};
use hartline_isa::decode;
use inkwell::context::Context;
use libfuzzer_sys::{Corpus, fuzz_target};
use program::elf;
use std::num::NonZero;

/// Longest code, bytes, so that a program is translated in some milliseconds.
const MAX_CODE: usize = 400;

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let Some((&choice, code)) = bytes.split_first() else {
        return Corpus::Reject;
    };
    if code.len() < 4 || code.len() > MAX_CODE {
        return Corpus::Reject;
    }
    let file = elf(&valid(code), choice & 1 == 1);
    let features = match choice >> 1 & 1 {
        0 => "",
        _ => "+popcnt,+lzcnt,+bmi,+bmi2,+sse4.2,+avx,+avx2,+fma,+pclmul",
    };
    let options = Options {
        features: features.to_owned(),
        threads: NonZero::new(1),
        precise: choice >> 2 & 1 == 1,
        ..Options::default()
    };
    let translator = Translator::new(&file, &options).expect("a program");
    verify(&translator);
    let linked = translator.translate(&Silent).expect("translates");
    let key = Key::new(&file, features, "");
    let image = build(
        &key,
        options.variant(),
        translator.unit().text.clone(),
        &linked,
    )
    .expect("an image");
    Image::open(&image).expect("a good image");
    check_jit(code, &options);
    Corpus::Keep
});

/// Translates the bytes as code that a program made, with entries at both ends and in the middle.
fn check_jit(code: &[u8], options: &Options) {
    const START: u64 = 0x3f_1234_5678;
    // Code consists of whole halfwords.
    let code = &code[..code.len() & !1];
    let entries = [0, code.len() as u64 / 4 * 2, code.len() as u64 - 2];
    let code = JitCode {
        start: START,
        code,
        entries: &entries.map(|at| START + at),
    };
    let options = Options {
        untrusted_abi: true,
        ..options.clone()
    };
    let JitTranslation { bytes, layout } = optimise_jit(&code, &options).expect("translates");
    assert_eq!(layout.length(), Some(bytes.len() as u64));
}

/// Checks with LLVM's verifier all functions before they are optimised.
fn verify(translator: &Translator<'_>) {
    let unit = translator.unit();
    let codegen = Codegen::new(unit.features.llvm(), &unit.disabled).expect("x86-64 is there");
    let context = Context::create();
    let ir = Ir::new(&context, Naming::for_readers(unit.position_independent));
    codegen.prepare(&ir.module);
    for function in &translator.flow().functions {
        lift(&ir, unit, function, None);
    }
    if let Err(message) = ir.module.verify() {
        panic!("{}", message.to_string());
    }
}

/// Returns code of legal instructions only, so that most of it is reached: an invalid encoding is
/// shortened to a compressed instruction, or left out.
fn valid(bytes: &[u8]) -> Vec<u8> {
    let mut code = Vec::new();
    let mut rest = bytes;
    while let Some((word, after)) = rest.split_first_chunk::<4>() {
        let bits = u32::from_le_bytes(*word);
        if bits & 3 == 3 && decode(bits).is_some() {
            code.extend(word);
            rest = after;
            continue;
        }
        let half = bits & 0xffff & !u32::from(bits & 3 == 3);
        if decode(half).is_some() {
            code.extend((half as u16).to_le_bytes());
        }
        rest = &rest[2..];
    }
    // The code ends with `ret`.
    code.extend([0x82, 0x80]);
    code
}

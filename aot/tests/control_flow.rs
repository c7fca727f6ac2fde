//! Control-flow recovery of programs from Debian packages, and of C programs compiled here.

use hartline_aot::cfg::{ControlFlow, EdgeKind, Statistics, Terminator, recover};
use hartline_aot::elf::Binary;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file of a Debian riscv64 package, fetched if it is missing.
fn debian(package: &str, file: &str) -> Vec<u8> {
    let root = repository().join(".debian/riscv64");
    let path = root.join(file);
    if !path.exists() {
        let fetch = repository().join("deploy/setup/fetch-debian.sh");
        let status = Command::new(fetch)
            .arg("riscv64")
            .arg(&root)
            .arg(package)
            .status();
        assert!(
            status.expect("fetch-debian.sh runs").success(),
            "{package} is fetched"
        );
    }
    std::fs::read(&path).expect("the package has the file")
}

/// Checks the invariants of any recovered function.
fn check_invariants(flow: &ControlFlow) {
    assert!(flow.functions.is_sorted_by(|a, b| a.entry < b.entry));
    for function in &flow.functions {
        assert!(function.block(function.entry).is_some());
        assert!(function.blocks.is_sorted_by(|a, b| a.start < b.start));
        let mut back_edges = 0;
        for block in &function.blocks {
            let mut pc = block.start;
            for (at, instruction) in &block.instructions {
                assert_eq!(*at, pc);
                pc += u64::from(instruction.length());
            }
            assert_eq!(block.end(), pc);
            for edge in block.terminator.edges() {
                let target = function.block(edge.target);
                assert_eq!(
                    target.is_some(),
                    edge.is_internal(),
                    "{:#x} {edge:?}",
                    block.start
                );
                if edge.kind == EdgeKind::Back {
                    back_edges += 1;
                    assert!(target.is_some_and(|target| target.is_loop_header));
                }
            }
        }
        assert!(back_edges > 0 || !function.blocks.iter().any(|block| block.is_loop_header));
        check_cycles(function);
    }
}

/// Checks that a function without its back edges has no cycle.
fn check_cycles(function: &hartline_aot::cfg::Function) {
    let forward = |block: &hartline_aot::cfg::Block| {
        let edges = block
            .terminator
            .edges()
            .filter(|edge| edge.kind == EdgeKind::Forward);
        edges.map(|edge| edge.target).collect::<Vec<_>>()
    };
    let mut ways_in = std::collections::HashMap::new();
    for target in function.blocks.iter().flat_map(forward) {
        *ways_in.entry(target).or_insert(0) += 1;
    }
    let mut ready: Vec<u64> = vec![function.entry];
    assert!(!ways_in.contains_key(&function.entry));
    let mut done = 0;
    while let Some(pc) = ready.pop() {
        done += 1;
        for target in forward(function.block(pc).expect("an internal edge")) {
            let left = ways_in.get_mut(&target).expect("counted");
            *left -= 1;
            if *left == 0 {
                ready.push(target);
            }
        }
    }
    assert_eq!(
        done,
        function.blocks.len(),
        "cycle in {:#x}",
        function.entry
    );
}

fn recover_and_print(name: &str, bytes: &[u8]) -> (ControlFlow, Statistics) {
    let binary = Binary::parse(bytes).expect("a valid program");
    let start = Instant::now();
    let flow = recover(&binary);
    let seconds = start.elapsed().as_secs_f64();
    let statistics = flow.statistics(&binary);
    println!(
        "{name}: {} functions, {} blocks, {} instructions in {seconds:.3} s; \
         {} of {} text bytes, {} of {} function bytes; \
         {} jump tables, {} other indirect jumps, {} indirect calls",
        statistics.functions,
        statistics.blocks,
        statistics.instructions,
        statistics.reached_bytes,
        statistics.text_bytes,
        statistics.reached_function_bytes,
        statistics.function_bytes,
        statistics.jump_tables.len(),
        statistics.indirect_jumps.len(),
        statistics.indirect_calls.len(),
    );
    check_invariants(&flow);
    (flow, statistics)
}

#[test]
fn recovers_busybox() {
    let bytes = debian("busybox-static", "usr/bin/busybox");
    let (_, statistics) = recover_and_print("busybox", &bytes);
    assert!(statistics.functions > 3000);
    assert!(statistics.reached_function_bytes * 100 >= statistics.function_bytes * 97);
    assert!(statistics.jump_tables.len() > 100);
}

#[test]
fn recovers_libc() {
    let bytes = debian("libc6", "usr/lib/riscv64-linux-gnu/libc.so.6");
    let (flow, statistics) = recover_and_print("libc.so.6", &bytes);
    assert!(statistics.reached_function_bytes * 100 >= statistics.function_bytes * 97);
    let calls_setjmp = flow.functions.iter().flat_map(|function| &function.blocks);
    let twice = calls_setjmp.filter(|block| {
        matches!(
            block.terminator,
            Terminator::Call {
                returns_twice: true,
                ..
            }
        )
    });
    assert!(twice.count() > 0, "libc calls setjmp itself");
}

/// Compiles a file of `programs`, strips the result, and returns it.
fn compile(source: &str, directory: &Path, options: &[&str]) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let output = directory.join(options.concat());
    let status = Command::new("riscv64-linux-gnu-gcc")
        .args(["-nostdlib", "-ffreestanding", "-fno-builtin", "-s", "-o"])
        .arg(&output)
        .args(options)
        .arg(path.join(source))
        .status();
    assert!(
        status.expect("the cross compiler runs").success(),
        "{options:?}"
    );
    std::fs::read(output).expect("the compiler wrote a program")
}

#[test]
fn resolves_every_switch() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        for kind in [
            &["-static"][..],
            &["-static-pie", "-fPIE"],
            &["-static", "-march=rv64gc_zba_zbb"],
        ] {
            let options = [&[level], kind].concat();
            let bytes = compile("switches.c", directory.path(), &options);
            let (_, statistics) = recover_and_print(&options.join(" "), &bytes);
            let open = &statistics.indirect_jumps;
            assert!(open.is_empty(), "{options:?}: {open:x?}");
            assert!(statistics.jump_tables.len() >= 7, "{options:?}");
            assert_eq!(
                statistics.reached_function_bytes, statistics.function_bytes,
                "{options:?}"
            );
        }
    }
}

/// A long callee of a tail call stays a function of its own.
#[test]
fn merges_only_parts_of_functions() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let bytes = compile("parts.S", directory.path(), &["-static"]);
    let (flow, _) = recover_and_print("parts", &bytes);
    let counts = flow.functions.iter().map(|f| f.instruction_count());
    let mut counts: Vec<usize> = counts.collect();
    counts.sort_unstable();
    // `_start`; `select` with `short`; the two commands; `work` with its part.
    assert_eq!(counts, [3, 7, 401, 401, 404]);
}

#[test]
fn resolves_hoisted_tables() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Data that the dynamic loader writes could be changed.
    for (options, certain) in [
        (&["-static"][..], true),
        (&["-static-pie", "-DRELOCATED"], false),
    ] {
        let kind = options.join(" ");
        let bytes = compile("hoisted.S", directory.path(), options);
        let (flow, statistics) = recover_and_print(&kind, &bytes);
        let open = &statistics.indirect_jumps;
        assert!(open.is_empty(), "{kind}: {open:x?}");
        let cases = flow.cases();
        let tables = flow.functions.iter().flat_map(|function| &function.blocks);
        let tables = tables.filter_map(|block| match &block.terminator {
            Terminator::JumpTable(table) => {
                let mut targets = table.targets.iter();
                assert!(targets.all(|edge| cases.contains(&edge.target)));
                Some((table.index.is_some(), table.certain, table.targets.len()))
            }
            _ => None,
        });
        let mut tables: Vec<_> = tables.collect();
        tables.sort_unstable();
        let mut expected = vec![(false, false, 3), (true, false, 4)];
        expected.extend([(true, certain, 10); 11]);
        expected.sort_unstable();
        assert_eq!(tables, expected, "{kind}");
    }
}

/// A library's constants are usable only if they are mapped together with code.
#[test]
fn certain_tables_are_constant() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (layout, constant) in [
        ("-Wl,-z,separate-code", false),
        ("-Wl,-z,noseparate-code", true),
    ] {
        let options = ["-O2", "-shared", "-fPIC", layout];
        let bytes = compile("switches.c", directory.path(), &options);
        let (flow, statistics) = recover_and_print(layout, &bytes);
        assert!(statistics.jump_tables.len() >= 7, "{layout}");
        let blocks = flow.functions.iter().flat_map(|function| &function.blocks);
        let certain = blocks.filter(
            |block| matches!(&block.terminator, Terminator::JumpTable(table) if table.certain),
        );
        assert_eq!(certain.count() > 0, constant, "{layout}");
    }
}

/// A file that parses never makes recovery fail or run without end.
#[test]
fn survives_damaged_files() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let options = [
        "-O2",
        "-static-pie",
        "-fPIE",
        "-fasynchronous-unwind-tables",
    ];
    let original = compile("switches.c", directory.path(), &options);
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 16) as usize % limit
    };
    let mut recovered = 0;
    for _ in 0..400 {
        let mut bytes = original.clone();
        for _ in 0..=next(30) {
            let offset = next(bytes.len());
            bytes[offset] = next(256) as u8;
        }
        // The ELF header is kept, so that most files parse.
        bytes[..64].copy_from_slice(&original[..64]);
        if let Ok(binary) = Binary::parse(&bytes) {
            let flow = recover(&binary);
            check_invariants(&flow);
            let instructions = flow.statistics(&binary).instructions as u64;
            let text: u64 = binary
                .text()
                .iter()
                .map(|text| text.bytes.len() as u64)
                .sum();
            assert!(instructions <= 8 * text + 4096);
            recovered += 1;
        }
    }
    assert!(recovered > 200, "{recovered} of 400 files parse");
}

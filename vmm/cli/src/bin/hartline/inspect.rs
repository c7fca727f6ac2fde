//! `hartline inspect`: the properties of an ELF file, and the part of it that can be translated.

use anyhow::Context;
use hartline_abi::elf::{Program, ProgramType, kind};
use hartline_abi::image::variant;
use hartline_aot::analysis::ConstantLoads;
use hartline_aot::elf::Binary;
use hartline_aot::translator::Translator;
use hartline_embed::translation::{CachedImage, Translation};
use hartline_vmm::program;
use serde::Serialize;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `hartline inspect`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// The riscv64 file
    elf: PathBuf,
}

/// Prints the properties on standard output.
///
/// # Errors
/// The file is no riscv64 program or shared library.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let inspection = Inspection::new(&arguments.elf)?;
    if arguments.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&inspection)?)?;
    } else {
        write!(io::stdout(), "{inspection}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The properties of a file.
#[derive(Debug, Serialize)]
struct Inspection {
    file: PathBuf,
    /// `executable` or `position-independent`.
    kind: &'static str,
    /// Bytes of the file.
    size: usize,
    entry: Option<u64>,
    /// Path of the program interpreter of a dynamically linked program.
    interpreter: Option<String>,
    /// Shared libraries that it needs.
    needed: Vec<String>,
    segments: Vec<Segment>,
    functions: usize,
    named_functions: usize,
    blocks: usize,
    instructions: usize,
    text_bytes: u64,
    /// Part of the text that is in a recovered function, 0 to 1.
    text_coverage: f64,
    /// Part of the functions' text, by unwind information and symbols, that is in a recovered
    /// function.
    function_coverage: f64,
    /// Indirect jumps through tables whose targets are known.
    jump_tables: usize,
    /// Indirect jumps that are dispatched at run time.
    indirect_jumps: usize,
    /// Indirect calls, which are all dispatched at run time.
    indirect_calls: usize,
    /// Loads from read-only memory that translations replace by constants.
    folded_loads: usize,
    /// The translation image in the cache, if there is one.
    image: Option<CachedImage>,
}

#[derive(Debug, Serialize)]
struct Segment {
    address: u64,
    file_size: u64,
    memory_size: u64,
    /// Permissions in the form of `ls`: `r-x`.
    access: String,
}

impl Inspection {
    fn new(path: &Path) -> anyhow::Result<Self> {
        let name = || path.display().to_string();
        let elf = program::read(path)?;
        let translation = Translation::for_looking(&[])?;
        let translator =
            Translator::new(&elf, &translation.options(variant::NORMAL)).with_context(name)?;
        let binary = translator.binary();
        let program = binary.program();
        let statistics = translator.flow().statistics(binary);
        let functions = translator.flow().functions.iter();
        Ok(Self {
            file: path.to_path_buf(),
            kind: match program.program_type() {
                ProgramType::Exec => "executable",
                ProgramType::Dyn => "position-independent",
            },
            size: elf.len(),
            entry: program.entry(),
            interpreter: program.interpreter().map(text),
            needed: needed(binary),
            segments: segments(program),
            functions: statistics.functions,
            named_functions: functions.clone().filter(|f| f.name.is_some()).count(),
            blocks: statistics.blocks,
            instructions: statistics.instructions,
            text_bytes: statistics.text_bytes,
            text_coverage: part(statistics.reached_bytes, statistics.text_bytes),
            function_coverage: part(statistics.reached_function_bytes, statistics.function_bytes),
            jump_tables: statistics.jump_tables.len(),
            indirect_jumps: statistics.indirect_jumps.len(),
            indirect_calls: statistics.indirect_calls.len(),
            folded_loads: functions
                .map(|function| ConstantLoads::of(function, translator.unit()).count())
                .sum(),
            image: translation.find(&elf),
        })
    }
}

/// The ratio of `a` to `b`, from 0 to 1; 1 if `b` is 0.
fn part(a: u64, b: u64) -> f64 {
    if b == 0 { 1.0 } else { a as f64 / b as f64 }
}

/// Text from a file, which may contain any bytes.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().to_string()
}

fn segments(program: &Program<'_>) -> Vec<Segment> {
    let access = |on: bool, letter: char| if on { letter } else { '-' };
    let segments = program.segments().map(|s| Segment {
        address: s.vaddr,
        file_size: s.file_size,
        memory_size: s.mem_size,
        access: [
            access(s.read, 'r'),
            access(s.write, 'w'),
            access(s.execute, 'x'),
        ]
        .iter()
        .collect(),
    });
    segments.collect()
}

/// Names in `DT_NEEDED` entries (System V ABI, chapter 5, "Dynamic Section"). Malformed entries are
/// left out: the dynamic loader decides about them.
fn needed(binary: &Binary<'_>) -> Vec<String> {
    const DT_NULL: u64 = 0;
    const DT_NEEDED: u64 = 1;
    const DT_STRTAB: u64 = 5;
    let Some(header) = binary.program().header(kind::DYNAMIC) else {
        return Vec::new();
    };
    let memory = binary.memory();
    let table = memory.file_bytes(header.vaddr).unwrap_or_default();
    let length = usize::try_from(header.file_size).map_or(table.len(), |n| n.min(table.len()));
    let entries: Vec<(u64, u64)> = table[..length]
        .chunks_exact(16)
        .filter_map(|entry| {
            let (tag, value) = entry.split_first_chunk()?;
            let value = value.first_chunk()?;
            Some((u64::from_le_bytes(*tag), u64::from_le_bytes(*value)))
        })
        .take_while(|&(tag, _)| tag != DT_NULL)
        .collect();
    let strings = entries.iter().find(|(tag, _)| *tag == DT_STRTAB);
    let strings = strings.and_then(|&(_, address)| memory.file_bytes(address));
    let name = |offset: u64| {
        let rest = strings?.get(usize::try_from(offset).ok()?..)?;
        Some(text(rest.split(|&byte| byte == 0).next()?))
    };
    let offsets = entries.iter().filter(|(tag, _)| *tag == DT_NEEDED);
    offsets.filter_map(|&(_, offset)| name(offset)).collect()
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: String| writeln!(f, "{name:<22}{value}");
        row(
            "file",
            format!("{}, {} bytes", self.file.display(), self.size),
        )?;
        row("type", format!("{} riscv64 ELF file", self.kind))?;
        row(
            "entry",
            self.entry
                .map_or("none".into(), |entry| format!("{entry:#x}")),
        )?;
        let interpreter = self.interpreter.clone();
        row("program interpreter", interpreter.unwrap_or("none".into()))?;
        if !self.needed.is_empty() {
            row("shared libraries", self.needed.join(" "))?;
        }
        for s in &self.segments {
            let (address, access) = (s.address, &s.access);
            let sizes = format!("{} bytes, {} in memory", s.file_size, s.memory_size);
            row("segment", format!("{access} at {address:#x}, {sizes}"))?;
        }
        row(
            "functions",
            format!("{}, {} with a name", self.functions, self.named_functions),
        )?;
        row("blocks", self.blocks.to_string())?;
        row("instructions", self.instructions.to_string())?;
        let text = 100.0 * self.text_coverage;
        row(
            "text",
            format!("{} bytes, {text:.2} % recovered", self.text_bytes),
        )?;
        let functions = 100.0 * self.function_coverage;
        row("text of functions", format!("{functions:.2} % recovered"))?;
        row("jump tables", self.jump_tables.to_string())?;
        row("other indirect jumps", self.indirect_jumps.to_string())?;
        row("indirect calls", self.indirect_calls.to_string())?;
        row("loads of constants", self.folded_loads.to_string())?;
        row(
            "translation image",
            match &self.image {
                Some(image) => format!("{}, {} bytes", image.path.display(), image.size),
                None => "not in the cache (hartline build makes it)".into(),
            },
        )
    }
}

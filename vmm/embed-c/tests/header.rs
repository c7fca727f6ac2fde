//! `hartline_host.h` and the library fit each other: values, structures and functions.

use hartline_host::{
    EndCause, RawBaseline, RawOptions, RawReset, RawRun, RawRunEnd, RawTemplateOptions, Status,
};
use std::ffi::{c_char, c_void};
use std::fmt::Write;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn header() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hartline_host.h")
}

/// Expressions of the header in C, and their values here.
fn values() -> Vec<(String, u64)> {
    let mut values: Vec<(String, u64)> = vec![
        (
            "HARTLINE_INTERFACE".into(),
            hartline_host::hartline_interface().into(),
        ),
        (
            "HARTLINE_HOST_MAX_DATA".into(),
            hartline_embed::MAX_DATA as u64,
        ),
        ("HARTLINE_INTERPRET".into(), 1),
        ("HARTLINE_TUNE_ALLOCATOR".into(), 2),
        (
            "sizeof(struct hartline_options)".into(),
            size_of::<RawOptions>() as u64,
        ),
        (
            "sizeof(struct hartline_reset_result)".into(),
            size_of::<RawReset>() as u64,
        ),
        (
            "sizeof(struct hartline_template_options)".into(),
            size_of::<RawTemplateOptions>() as u64,
        ),
        (
            "sizeof(struct hartline_run)".into(),
            size_of::<RawRun>() as u64,
        ),
        (
            "sizeof(struct hartline_run_end)".into(),
            size_of::<RawRunEnd>() as u64,
        ),
        ("sizeof(hartline_sandbox)".into(), size_of::<u64>() as u64),
        ("sizeof(hartline_template)".into(), size_of::<u64>() as u64),
        ("sizeof(hartline_clone)".into(), size_of::<u64>() as u64),
    ];
    let statuses = [
        ("OK", Status::Ok),
        ("ARGUMENT", Status::Argument),
        ("NO_SANDBOX", Status::NoSandbox),
        ("STATE", Status::State),
        ("LOAD", Status::Load),
        ("START", Status::Start),
        ("FUNCTION", Status::Function),
        ("LATE", Status::Late),
        ("ENDED", Status::Ended),
        ("POISONED", Status::Poisoned),
        ("ROOM", Status::Room),
        ("NESTED", Status::Nested),
        ("WAITING", Status::Waiting),
        ("LOST", Status::Lost),
        ("FORKED", Status::Forked),
        ("BUG", Status::Bug),
        ("NO_TEMPLATE", Status::NoTemplate),
        ("NO_CLONE", Status::NoClone),
        ("STREAMS", Status::Streams),
    ];
    for (name, status) in statuses {
        let value = u64::from((status as i32).unsigned_abs());
        values.push((format!("HARTLINE_{name}"), value));
    }
    for (name, value) in [
        ("BASELINE_AUTO", RawBaseline::Auto as u32),
        ("BASELINE_OFF", RawBaseline::Off as u32),
        ("BASELINE_WHOLE", RawBaseline::Whole as u32),
        ("BASELINE_ONLY", RawBaseline::Only as u32),
        ("EXITED", EndCause::Exited as u32),
        ("SIGNALED", EndCause::Signaled as u32),
        ("TIME_LIMIT", EndCause::TimeLimit as u32),
        ("FAILED", EndCause::Failed as u32),
    ] {
        values.push((format!("HARTLINE_{name}"), value.into()));
    }
    let mut field = |structure: &str, name: &str, offset: usize| {
        values.push((
            format!("offsetof(struct hartline_{structure}, {name})"),
            offset as u64,
        ));
    };
    macro_rules! fields {
        ($structure:literal, $raw:ty, $($field:ident)*) => {
            $(field($structure, stringify!($field), offset_of!($raw, $field));)*
        };
    }
    fields!("options", RawOptions, size arguments argument_count environment environment_count rootfs cache ram
        start_limit_ms output error flags reserved);
    fields!("reset_result", RawReset, pages time_ns tables_changed reserved);
    fields!("template_options", RawTemplateOptions, size cache start_limit_ms baseline reserved);
    fields!("run", RawRun, size input input_length output output_room error error_room input_file output_file
        error_file reserved);
    fields!("run_end", RawRunEnd, cause code signal reserved output_length error_length output_total error_total reset);
    values
}

/// The functions of the header, checked by their types here.
fn prototypes() -> Vec<&'static str> {
    use hartline_host as lib;
    let _: extern "C" fn() -> *const c_char = lib::hartline_version;
    let _: extern "C" fn() -> u32 = lib::hartline_interface;
    let _: extern "C" fn() -> *const c_char = lib::hartline_last_error;
    let _: extern "C" fn() -> i32 = lib::hartline_last_errno;
    let _: unsafe extern "C" fn(*const c_char, *const RawOptions, *mut u64) -> i32 =
        lib::hartline_create;
    let _: unsafe extern "C" fn(u64, i32, i32, *mut u64) -> i32 = lib::hartline_create_from;
    let _: unsafe extern "C" fn(u64, *const c_char, Option<HostFunction>, *mut c_void) -> i32 =
        lib::hartline_register;
    let _: extern "C" fn(u64) -> i32 = lib::hartline_start;
    let _: unsafe extern "C" fn(
        u64,
        *const c_char,
        *const c_void,
        usize,
        *mut c_void,
        usize,
        *mut usize,
        u64,
    ) -> i32 = lib::hartline_call;
    let _: unsafe extern "C" fn(u64, *mut RawReset) -> i32 = lib::hartline_reset;
    let _: unsafe extern "C" fn(u64, *mut c_char, usize, *mut usize) -> i32 =
        lib::hartline_warnings;
    let _: extern "C" fn(u64) -> i32 = lib::hartline_end;
    let _: extern "C" fn() -> *const c_char = lib::hartline_last_message;
    let _: unsafe extern "C" fn(*const c_char, *const RawTemplateOptions, *mut u64) -> i32 =
        lib::hartline_template_load;
    let _: extern "C" fn(u64) -> i32 = lib::hartline_template_free;
    let _: unsafe extern "C" fn(u64, *mut u64) -> i32 = lib::hartline_clone_start;
    let _: unsafe extern "C" fn(u64, *const RawRun, *mut RawRunEnd, u64) -> i32 =
        lib::hartline_clone_run;
    let _: unsafe extern "C" fn(u64, *mut c_char, usize, *mut usize) -> i32 =
        lib::hartline_clone_warnings;
    let _: extern "C" fn(u64) -> i32 = lib::hartline_clone_end;
    vec![
        "const char *hartline_version(void)",
        "uint32_t hartline_interface(void)",
        "const char *hartline_last_error(void)",
        "int32_t hartline_last_errno(void)",
        "int32_t hartline_create(const char *path, const struct hartline_options *options, hartline_sandbox *sandbox)",
        "int32_t hartline_create_from(hartline_template loaded, int32_t output, int32_t error, hartline_sandbox *sandbox)",
        "int32_t hartline_register(hartline_sandbox sandbox, const char *name, hartline_host_function function, void *user)",
        "int32_t hartline_start(hartline_sandbox sandbox)",
        "int32_t hartline_call(hartline_sandbox sandbox, const char *name, const void *input, size_t length, void *output, \
         size_t room, size_t *output_length, uint64_t limit_ms)",
        "int32_t hartline_reset(hartline_sandbox sandbox, struct hartline_reset_result *result)",
        "int32_t hartline_warnings(hartline_sandbox sandbox, char *text, size_t room, size_t *length)",
        "int32_t hartline_end(hartline_sandbox sandbox)",
        "const char *hartline_last_message(void)",
        "int32_t hartline_template_load(const char *directory, const struct hartline_template_options *options, \
         hartline_template *loaded)",
        "int32_t hartline_template_free(hartline_template loaded)",
        "int32_t hartline_clone_start(hartline_template loaded, hartline_clone *clone)",
        "int32_t hartline_clone_run(hartline_clone clone, const struct hartline_run *run, struct hartline_run_end *end, \
         uint64_t limit_ms)",
        "int32_t hartline_clone_warnings(hartline_clone clone, char *text, size_t room, size_t *length)",
        "int32_t hartline_clone_end(hartline_clone clone)",
    ]
}

type HostFunction =
    unsafe extern "C" fn(*mut c_void, *const c_void, usize, *mut c_void, usize) -> i64;

/// Compiles a C or C++ file with the header. Result: the program.
fn compile(
    directory: &Path,
    compiler: &str,
    arguments: &[&str],
    name: &str,
    text: &str,
) -> PathBuf {
    let (source, program) = (directory.join(name), directory.join("program"));
    fs::write(&source, text).unwrap();
    let mut command = Command::new(compiler);
    command
        .args(arguments)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    command.arg("-I").arg(header().parent().unwrap());
    let output = command
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{compiler} {arguments:?}: {errors}"
    );
    program
}

#[test]
fn values_and_structures_are_equal() {
    let mut text =
        "#include \"hartline_host.h\"\n#include <stdio.h>\nint main(void) {\n".to_owned();
    text += "struct hartline_options options = HARTLINE_OPTIONS;\n\
        struct hartline_template_options how = HARTLINE_TEMPLATE_OPTIONS;\n\
        struct hartline_run run = HARTLINE_RUN;\n";
    for (expression, _) in values() {
        writeln!(
            text,
            "printf(\"%llu\\n\", (unsigned long long)({expression}));"
        )
        .unwrap();
    }
    text += "return (int)(options.size != sizeof options) + (options.output != -1) + (options.error != -1) +\n\
        (int)(how.size != sizeof how) + (int)(run.size != sizeof run) + (run.input_file != -1) +\n\
        (run.output_file != -1) + (run.error_file != -1);\n}\n";
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "cc", &["-std=c11"], "values.c", &text);
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success());
    let lines = String::from_utf8(output.stdout).unwrap();
    let found: Vec<u64> = lines.lines().map(|line| line.parse().unwrap()).collect();
    let values = values();
    assert_eq!(found.len(), values.len());
    for ((expression, expected), found) in values.iter().zip(found) {
        assert_eq!(found, *expected, "{expression}");
    }
}

#[test]
fn functions_are_equal() {
    let text = fs::read_to_string(header()).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    let prototypes = prototypes();
    for prototype in &prototypes {
        assert!(text.contains(&format!("{prototype};")), "{prototype}");
    }
    // No other one is declared.
    let declared = text.split(';').filter(|part| {
        let part = part.rsplit("*/").next().unwrap_or("").trim();
        let types = [
            "int32_t hartline_",
            "uint32_t hartline_",
            "const char *hartline_",
        ];
        part.ends_with(')') && types.iter().any(|result| part.starts_with(result))
    });
    assert_eq!(declared.count(), prototypes.len());
}

#[test]
fn the_header_is_cplusplus_too() {
    let directory = tempfile::tempdir().unwrap();
    let text = "#include \"hartline_host.h\"\nint main() {\n\
        struct hartline_options options = HARTLINE_OPTIONS;\n\
        struct hartline_template_options how = HARTLINE_TEMPLATE_OPTIONS;\n\
        struct hartline_run run = HARTLINE_RUN;\n\
        return static_cast<int>(options.size + how.size + run.size);\n}\n";
    compile(
        directory.path(),
        "c++",
        &["-std=c++17", "-Wno-missing-field-initializers"],
        "header.cc",
        text,
    );
}

//! Root directories with Debian's dynamically linked programs and their libraries.

use crate::compare::Run;
use crate::compile::{self, check};
use crate::{Result, hartline, paths, tree};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's directory of libraries.
const LIBRARIES: &str = "usr/lib/riscv64-linux-gnu";

/// Prefixes of the names of the libraries that the programs need.
const NEEDED: [&str; 38] = [
    "ld-linux-riscv64-lp64d.so",
    "libacl.so",
    "libatomic.so",
    "libattr.so",
    "libbz2.so",
    "libc.so",
    "libcrypt.so",
    "libcap.so",
    "libcrypto.so",
    "libdb-",
    "libevent",
    "libexpat.so",
    "libgcc_s.so",
    "libgmp.so",
    "libhiredis",
    "libjemalloc.so",
    "liblua5.1",
    "libjq.so",
    "liblzf.so",
    "liblzma.so",
    "libm.so",
    "libmpfr.so",
    "libonig.so",
    "libpcre2-8.so",
    "libproc2.so",
    "libreadline.so",
    "libsasl2.so",
    "libsctp.so",
    "libselinux.so",
    "libsigsegv.so",
    "libsmartcols.so",
    "libsqlite3.so",
    "libssl.so",
    "libstdc++.so",
    "libsystemd.so",
    "libtinfo.so",
    "libz.so",
    "libzstd.so",
];

/// A bc script: 200 digits of π, square roots and a loop.
const PI: &str = "scale = 200\n4 * a(1)\nsqrt(2)\nfor (i = 1; i < 20; i++) i ^ i % 1000\nquit\n";

/// The libraries of `/usr/bin/libraries`.
pub const ANSWERS: [&str; 2] = ["/usr/lib/answer-1.so", "/usr/lib/answer-2.so"];

/// Scripts in `/data`.
const SCRIPTS: [(&str, &str); 4] = [
    ("pi.bc", PI),
    ("test.lua", LUA),
    ("test.sql", SQL),
    ("test.py", PYTHON),
];

const LUA: &str = r#"
local words = {}
for line in io.lines("/data/words.txt") do
    for word in line:gmatch("%a+") do words[word] = (words[word] or 0) + 1 end
end
local names = {}
for word in pairs(words) do names[#names + 1] = word end
table.sort(names)
for _, word in ipairs(names) do io.write(word, " ", words[word], "\n") end
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
print(fib(18), string.format("%.10f", math.pi), 7 // 2, 7 % -3, 2 ^ 0.5)
print(select(2, pcall(error, { code = 1 })).code)
local co = coroutine.wrap(function(a) for i = 1, 3 do a = coroutine.yield(a * i) end return "end" end)
print(co(2), co(3), co(4), co(5))
os.exit(3)
"#;

const SQL: &str = "
create table city(id integer primary key, name text unique, people real);
begin;
with recursive n(i) as (select 1 union all select i + 1 from n where i < 400)
  insert into city select i, 'city' || (i * 7919 % 1000), i * 1.25 from n;
commit;
create index people on city(people);
select count(*), sum(people), avg(people), min(name), max(name) from city;
select name, people from city where people between 100 and 110 order by name desc;
select substr(name, 5, 1) as digit, count(*), round(sum(people), 2) from city group by digit order by 1;
update city set people = people * 2 where id % 3 = 0;
delete from city where id % 5 = 0;
select a.name, b.name from city a join city b on b.id = a.id + 1 where a.id < 12;
select printf('%08.3f|%s|%x', 3.14159, upper('abc'), 255), hex('hi'), json_extract('{\"a\":[1,2]}', '$.a[1]');
insert into city values (1, 'twice', 0);
vacuum;
pragma integrity_check;
";

const PYTHON: &str = r#"
import collections, json, re, sys
def primes(limit):
    sieve = bytearray([1]) * limit
    for n in range(2, int(limit ** 0.5) + 1):
        if sieve[n]:
            sieve[n * n::n] = bytes(len(sieve[n * n::n]))
    return [n for n in range(2, limit) if sieve[n]]
print(sum(primes(20000)), 2 ** 200, 1 / 3)
words = collections.Counter(re.findall(r"\w+", open("/data/words.txt").read().lower()))
print(json.dumps(words.most_common(5), sort_keys=True))
class Shape:
    def __init__(self, *sides): self.sides = sides
    def __repr__(self): return f"{type(self).__name__}{self.sides!r}"
print(sorted(map(repr, (Shape(3, 4), Shape(1)))))
try:
    raise ValueError("told") from KeyError("why")
except ValueError as error:
    print(error, repr(error.__cause__))
sys.exit(5)
"#;

/// A root directory.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// Makes a root directory with these programs of `/usr/bin`, all libraries that they need, the
    /// files of [`tree::populate`], and a script for each interpreter in `/data`.
    ///
    /// # Errors
    /// The packages were not fetched (`make test-setup`), or the directory cannot be made.
    pub fn new<'p>(name: &str, programs: impl Iterator<Item = &'p str>) -> Result<Self> {
        let path = paths::work().join(format!("{name}-{}", std::process::id()));
        let root = Self { path };
        root.fill(programs).map_err(|error| {
            let message = error.message().unwrap_or("unknown");
            format!("root directory of the dynamically linked programs: {message}")
        })?;
        Ok(root)
    }

    /// Makes a root directory with Debian's gdb, and nothing else.
    ///
    /// # Errors
    /// As [`Root::new`].
    pub fn with_gdb(name: &str) -> Result<Self> {
        let path = paths::work().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        let root = Self { path };
        let mut copy = Command::new("cp");
        // Hard links: 100 MB, which nobody changes.
        copy.args(["-a", "-l", "-t"]).arg(&root.path);
        check(copy.arg(paths::debian_gdb().join("usr")))?;
        for name in ["bin", "lib"] {
            symlink(format!("usr/{name}"), root.path.join(name))?;
        }
        fs::create_dir(root.path.join("tmp"))?;
        Ok(root)
    }

    /// Adds Python's library without its tests.
    ///
    /// # Errors
    /// The library was not fetched, or cannot be copied.
    pub fn add_python(&self) -> Result<()> {
        self.copy_python(|name| name != "test")
    }

    /// Adds the tests of Python's library.
    ///
    /// # Errors
    /// As [`Root::add_python`].
    pub fn add_python_tests(&self) -> Result<()> {
        self.copy_python(|name| name == "test")
    }

    /// Copies the `wanted` entries of Python's library.
    fn copy_python(&self, wanted: impl Fn(&OsStr) -> bool) -> Result<()> {
        const LIBRARY: &str = "usr/lib/python3.13";
        let to = self.path.join(LIBRARY);
        fs::create_dir_all(&to)?;
        let mut copy = Command::new("cp");
        copy.args(["-a", "-t"]).arg(to);
        let entries = fs::read_dir(paths::debian_riscv64().join(LIBRARY))?.flatten();
        copy.args((entries.filter(|entry| wanted(&entry.file_name()))).map(|entry| entry.path()));
        check(&mut copy)
    }

    /// Adds `/usr/bin/libraries` and the libraries that it opens.
    ///
    /// # Errors
    /// The compiler is missing or refuses.
    pub fn add_libraries(&self) -> Result<()> {
        let inside = |path| self.path.join(path);
        for (path, answer) in [(ANSWERS[0], "-DANSWER=41"), (ANSWERS[1], "-DANSWER=42")] {
            let flags = ["-shared", "-fPIC", answer];
            compile::dynamic("answer.c", &flags, &inside(&path[1..]))?;
        }
        compile::dynamic("main.c", &[], &inside("usr/bin/libraries"))
    }

    /// Returns the path of the root directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a run of `/usr/bin/PROGRAM` in the root directory.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Run {
        let inside = format!("/usr/bin/{program}");
        Run::new(&self.path.join(&inside[1..]), arguments.iter().copied())
            .in_root(&self.path, &inside)
    }

    /// Translates a program of `/usr/bin`, or the library at an absolute path, with the
    /// libraries that it loads when it starts.
    ///
    /// # Errors
    /// As [`hartline::translate`].
    pub fn translate(&self, program: &str) -> Result<()> {
        hartline::translate_in_root(&self.path, &Path::new("/usr/bin").join(program))
    }

    fn fill<'p>(&self, programs: impl Iterator<Item = &'p str>) -> Result<()> {
        let (root, debian) = (&self.path, paths::debian_riscv64());
        for folder in ["usr/bin", LIBRARIES] {
            fs::create_dir_all(root.join(folder))?;
        }
        symlink("usr/bin", root.join("bin"))?;
        symlink("usr/lib", root.join("lib"))?;
        let mut copy = Command::new("cp");
        copy.args(["-a", "-t"]).arg(root.join("usr/bin"));
        let programs: BTreeSet<&str> = programs.collect();
        copy.args(
            programs
                .iter()
                .map(|name| debian.join("usr/bin").join(name)),
        );
        check(&mut copy)?;
        let mut copy = Command::new("cp");
        copy.args(["-a", "-t"]).arg(root.join(LIBRARIES));
        for entry in fs::read_dir(debian.join(LIBRARIES))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if NEEDED.iter().any(|start| name.starts_with(start)) {
                copy.arg(entry.path());
            }
        }
        check(&mut copy)?;
        let loader = "ld-linux-riscv64-lp64d.so.1";
        symlink(
            format!("riscv64-linux-gnu/{loader}"),
            root.join("usr/lib").join(loader),
        )?;
        tree::populate(root)?;
        for (name, text) in SCRIPTS {
            fs::write(root.join("data").join(name), text)?;
        }
        Ok(())
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // Left-over files are a nuisance, not a failure.
        let _ = fs::remove_dir_all(&self.path);
    }
}

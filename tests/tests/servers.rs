//! Servers and their clients in one VM over the loopback interface, also those of the workloads of
//! Debian's packages, a long script for Debian's bash
//! compared with this machine's, and traces of system calls.

use hartline_tests::compare::check_equal;
use hartline_tests::dynamic::Root;
use hartline_tests::packages::{self, List};
use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::{Result, hartline, paths, tree};
use std::fs;
use std::process::{Command, ExitCode};

/// Programs of the root directory, besides busybox.
const PROGRAMS: [&str; 15] = [
    "bash",
    "cat",
    "ls",
    "memcached",
    "mkfifo",
    "netperf",
    "netserver",
    "openssl",
    "redis-benchmark",
    "redis-check-rdb",
    "redis-cli",
    "redis-server",
    "sleep",
    "sort",
    "stat",
];

/// A shell function that waits until a server answers.
const AWAIT: &str = "await() { n=0; while ! \"$@\" >/dev/null 2>&1; do n=$((n + 1)); \
                     [ $n -gt 1000 ] && return 1; sleep 0.2; done; }\n";

/// Name, script, expected output.
const SERVERS: &[(&str, &str, &[&str])] = &[
    (
        "redis",
        "redis-server --port 7000 --save '' >/tmp/log 2>&1 & await redis-cli -p 7000 ping
         redis-cli -p 7000 set key 41; redis-cli -p 7000 incr key
         redis-benchmark -p 7000 -n 500 -c 10 -t set,get --csv | cut -d, -f1
         redis-cli -p 7000 shutdown nosave; wait $!; echo ended $?",
        &["OK", "42", "\"test\"", "\"SET\"", "\"GET\"", "ended 0"],
    ),
    (
        "memcached",
        "memcached -u root -p 7001 -U 0 -t 2 & await bash -c ': 3<>/dev/tcp/127.0.0.1/7001'
         { printf 'set k 0 0 5\\r\\nhello\\r\\nget k\\r\\nquit\\r\\n'; sleep 0.5; } |
             busybox nc 127.0.0.1 7001 | tr -d '\\r'
         kill $!; wait $!; echo ended $?",
        &["STORED", "VALUE k 0 5", "hello", "END", "ended 0"],
    ),
    (
        "netperf",
        "netserver -4 -p 7002 -D >/dev/null 2>&1 & await bash -c ': 3<>/dev/tcp/127.0.0.1/7002'
         netperf -4 -H 127.0.0.1 -p 7002 -l 1 -t TCP_RR -P 0 | head -n 1 | awk '{ print ($6 > 10) }'
         netperf -4 -H 127.0.0.1 -p 7002 -l 1 -t TCP_STREAM -P 0 | awk '{ print ($5 > 1) }'
         kill $!",
        &["1", "1"],
    ),
    (
        // The master and its workers use signals: SIGIO, SIGCHLD, SIGHUP. The workers make code for the expression.
        "nginx",
        "mkdir -p /tmp/www/html; cd /tmp/www; echo first >html/page
         printf '%s\\n' 'user root; worker_processes 2; pid nginx.pid; error_log error.log; pcre_jit on;' \
             'events {}' 'http { access_log off; client_body_temp_path a; proxy_temp_path b;' \
             'fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e;' \
             'server { listen 7004; root html;' \
             'location ~ ^/number0*([1-9][0-9]*)$ { return 200 $1; } } }' >conf
         nginx -p /tmp/www/ -e error.log -c conf; echo started $?
         get() { busybox wget -q -O - http://127.0.0.1:7004/page; }
         get; master=$(cat nginx.pid)
         for n in $(seq 60); do busybox wget -q -O - http://127.0.0.1:7004/number00$n; echo; done |
             awk '{ sum += $1 } END { print sum }'
         workers() { cat /proc/[0-9]*/stat 2>/dev/null | awk -v m=$master '$4 == m { print $1 }'; }
         until [ $(workers | wc -l) = 2 ]; do sleep 0.1; done; old=$(workers)
         sed -i 's/root html/root other/' conf; mkdir other; echo second >other/page
         nginx -p /tmp/www/ -e error.log -c conf -s reload; echo reloaded $?
         # The old workers serve until the new ones have begun.
         for worker in $old; do while [ -e /proc/$worker ]; do sleep 0.1; done; done; get
         until [ $(workers | wc -l) = 2 ]; do sleep 0.1; done
         worker=$(workers | head -n 1); kill -9 $worker; echo killed $?; get
         # Another one comes in its place.
         while [ -e /proc/$worker ] || [ $(workers | wc -l) != 2 ]; do sleep 0.1; done
         nginx -p /tmp/www/ -e error.log -c conf -s quit; echo quit $?
         n=0; while [ -e /proc/$master ] && [ $n -lt 1000 ]; do n=$((n + 1)); sleep 0.1; done
         [ -e nginx.pid ] || echo ended; grep -v -e notice -e 'exited on signal 9' error.log",
        &[
            "started 0",
            "first",
            "1830",
            "reloaded 0",
            "second",
            "killed 0",
            "second",
            "quit 0",
            "ended",
        ],
    ),
    (
        "TLS handshake",
        "cd /tmp; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
             -keyout key -out certificate -subj /CN=localhost -days 3 2>/dev/null
         openssl s_server -accept 7003 -key key -cert certificate -quiet -www &
         await bash -c ': 3<>/dev/tcp/127.0.0.1/7003'
         echo | openssl s_client -connect localhost:7003 -CAfile certificate 2>/dev/null |
             grep -E '^(Verification|Protocol)' | sort -u
         kill $!",
        &["Protocol: TLSv1.3", "Verification: OK"],
    ),
];

/// Scripts of [`DEBIAN`].
enum Script {
    /// The workload of this package.
    Workload(&'static str),
    Text(&'static str),
}

/// Servers and programs in the root directory of the workloads: name, script, expected output.
const DEBIAN: &[(&str, Script, &[&str])] = &[
    (
        "postgresql",
        Script::Workload("postgresql-17"),
        &[
            "1",
            "server started",
            "3000|0004d0b59e19461ff126e3a08a814c33",
            "Seq Scan on t",
            "number of transactions actually processed: 80/80",
            "",
            "3000",
            "server stopped",
        ],
    ),
    (
        "mariadb",
        Script::Workload("mariadb-server"),
        &[
            "0",
            "mysqld is alive",
            "count(*)\tmin(b)",
            "2000\t0004d0b59e19461ff126e3a08a814c33",
            "count(*)",
            "2000",
            "0",
        ],
    ),
    (
        "apache2",
        Script::Workload("apache2"),
        &[
            "Syntax OK",
            "page",
            "Complete requests:      200",
            "Failed requests:        0",
            "404",
            "page",
            "1",
        ],
    ),
    (
        "openssh",
        Script::Workload("openssh-server"),
        &["in", "4", "1c0f34fee7176dc367bead8f96cba6bc  -", "terminal"],
    ),
    (
        "sudo",
        Script::Workload("sudo"),
        &[
            "bob",
            "0",
            "sudo: a password is required",
            "0",
            "    (root) NOPASSWD: /usr/bin/id",
        ],
    ),
    (
        "fakeroot",
        Script::Workload("fakeroot"),
        &["0", "5:6", "character special file", "nobody"],
    ),
    (
        "git over ssh",
        Script::Text(GIT),
        &["3000", "two", "one", "more"],
    ),
    (
        "node",
        Script::Text(NODE),
        &["true true riscv64", "true true"],
    ),
    (
        "java",
        Script::Text(JAVA),
        &[
            "0",
            "    Provider: cgroupv2",
            "    CPU Quota: -1",
            "    Memory Limit: Unlimited",
            "    Maximum Processes Limit: Unlimited",
            "0",
        ],
    ),
];

/// Clones a repository over ssh, and pushes to it. Messages on standard error are output too.
const GIT: &str = r#"
exec 2>&1
mkdir -p /run/sshd /root/.ssh; chmod 700 /root/.ssh; ssh-keygen -q -t ed25519 -N '' -f h
ssh-keygen -q -t ed25519 -N '' -f k; cp k.pub /root/.ssh/authorized_keys
getent passwd sshd >/dev/null || useradd -r -d /run/sshd -s /usr/sbin/nologin sshd
/usr/sbin/sshd -p 2022 -h $PWD/h -o UsePAM=no -o PidFile=$PWD/pid -o ListenAddress=127.0.0.1
export GIT_SSH_COMMAND="ssh -q -i $PWD/k -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
git config --global user.name n; git config --global user.email e@x; git config --global init.defaultBranch main
git init -q --bare there; git init -q here; cd here; seq 3000 >a; git add a; git commit -qm one
git remote add origin ssh://root@127.0.0.1:2022/tmp/there
for i in 1 2 3 4 5 6 7 8 9; do git push -q origin main && break; sleep 1; done
git clone -q ssh://root@127.0.0.1:2022/tmp/there ../again; cd ../again; wc -l <a; echo more >>a
git commit -qam two; git push -q; git -C ../there log --format=%s; git -C ../here pull -q origin main
tail -n 1 ../here/a; kill $(cat ../pid)
"#;

/// What node learns of the system, and whether it complains.
const NODE: &str = r#"
exec 2>&1
node -e '
const os = require("os"), v8 = require("v8");
console.log(os.cpus().length === os.availableParallelism(), os.totalmem() > 2 ** 31, os.arch());
console.log(v8.getHeapStatistics().heap_size_limit > 2 ** 28, process.memoryUsage().rss > 2 ** 20);
'
"#;

/// What a JVM learns of the system, and whether it complains.
const JAVA: &str = r#"
exec 2>&1
java -XshowSettings:system -version 2>settings >out; echo $?
grep -e Provider: -e 'Memory Limit' -e 'CPU Quota' -e 'Maximum Processes' settings
grep -c -i -e warning -e 'not supported' -e 'no metrics' settings
"#;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    for (name, script, expected) in SERVERS {
        suite.add_kvm(*name, || server(name, script, expected));
    }
    for (name, script, expected) in DEBIAN {
        suite.add_long_kvm(*name, || debian(name, script, expected));
    }
    suite.add_kvm("a long script for bash", bash_script);
    suite.add_kvm("--strace", strace);
    suite.run()
}

/// Makes a root directory with the programs, and busybox for everything else.
fn root(name: &str) -> Result<Root> {
    let root = Root::new(name, PROGRAMS.into_iter())?;
    let inside = |path: &str| root.path().join(path);
    fs::copy(paths::busybox(), inside("usr/bin/busybox"))?;
    let nginx = paths::debian_riscv64().join("usr/sbin/nginx");
    fs::copy(nginx, inside("usr/bin/nginx"))?;
    let reference = paths::debian_amd64().join("usr/bin/busybox");
    let list = process::run(Command::new(reference).arg("--list"), b"")?;
    for applet in list.stdout_text().lines() {
        let link = inside("usr/bin").join(applet);
        if !link.exists() {
            std::os::unix::fs::symlink("busybox", link)?;
        }
    }
    fs::create_dir_all(inside("etc"))?;
    fs::write(inside("etc/hosts"), "127.0.0.1 localhost\n::1 localhost\n")?;
    fs::write(inside("etc/passwd"), "root:x:0:0::/:/bin/sh\n")?;
    fs::write(inside("etc/group"), "root:x:0:\n")?;
    fs::create_dir_all(inside("usr/lib/ssl"))?;
    fs::write(
        inside("usr/lib/ssl/openssl.cnf"),
        "[req]\ndistinguished_name = name\n[name]\n",
    )?;
    fs::create_dir_all(inside("tmp"))?;
    Ok(root)
}

fn server(name: &str, script: &str, expected: &[&str]) -> Result<()> {
    let root = root(&name.replace(' ', "-"))?;
    let script = format!("{AWAIT}{script}");
    let run = root.run("busybox", &["sh", "-c", &script]);
    // Nothing is translated ahead: that would take longer than the servers run.
    let outcome = process::run(&mut run.hartline_command(&[])?, b"")?;
    let lines: Vec<_> = outcome.stdout_text().lines().map(str::to_owned).collect();
    match lines == expected {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// Runs a script in the root directory of the workloads, and compares standard output.
fn debian(name: &str, script: &Script, expected: &[&str]) -> Result<()> {
    let script = match script {
        Script::Text(text) => (*text).to_owned(),
        Script::Workload(package) => {
            let mut workloads = List::Workloads.scripts()?.into_iter();
            let found = workloads.find(|workload| workload.package == *package);
            found
                .ok_or_else(|| format!("no workload {package}"))?
                .script
        }
    };
    let (_, image) = List::Workloads.root()?;
    let cache = paths::work().join(format!("servers-{}", name.replace(' ', "-")));
    let _ = fs::remove_dir_all(&cache);
    let (outcome, _) = packages::timed(&mut packages::run(&script, image, &cache, 1)?)?;
    fs::remove_dir_all(&cache)?;
    let text = outcome.stdout_text();
    match text.lines().eq(expected.iter().copied()) {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

fn bash_script() -> Result<()> {
    let root = root("bash-root")?;
    let source = paths::repository().join("tests/programs/script.bash");
    fs::copy(&source, root.path().join("script.bash"))?;
    let scratch = tree::Scratch::new()?;
    fs::copy(&source, scratch.path().join("script.bash"))?;
    let mut native = Command::new("bash");
    native.arg("script.bash").current_dir(scratch.path());
    native.env_clear().envs(hartline::ENVIRONMENT);
    let expected = without_errors(process::run(native.env("TMPDIR", scratch.path()), b"")?);
    // The script's programs are interpreted: there are many, and each does little.
    let run = root
        .run("bash", &["script.bash"])
        .with_env("TMPDIR", "/tmp");
    let outcome = process::run(&mut run.hartline_command(&[])?, b"")?;
    check_equal(&expected, &without_errors(outcome))
}

/// Removes standard error: messages with names of files and processes differ.
fn without_errors(outcome: Outcome) -> Outcome {
    Outcome {
        stderr: Vec::new(),
        ..outcome
    }
}

/// Lines of a trace: their starts and their ends.
const TRACE: &[(&str, &str)] = &[
    ("openat(AT_FDCWD, \"/data/words.txt\", O_RDONLY", " = 3"),
    (
        "openat(AT_FDCWD, \"/nowhere\", O_RDONLY",
        " = -1 ENOENT (No such file or directory)",
    ),
    ("brk(NULL)", " = 0x"),
    ("dup3(", ", 1, 0)"),
    ("wait4(-1, [{WIFEXITED(s) && WEXITSTATUS(s) == 7}], ", " = "),
    (
        "--- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=",
        "si_status=7} ---",
    ),
    ("exit_group(7)", " = ?"),
    ("+++ exited with 7 +++", ""),
    ("+++ killed by SIGUSR1 +++", ""),
];

fn strace() -> Result<()> {
    let root = root("strace-root")?;
    let script = "cat /nowhere /data/words.txt | (read line; exit 7); kill -USR1 $$";
    let run = root.run("busybox", &["sh", "-c", script]);
    let file = root.path().join("trace");
    let option = format!("--strace={}", file.display());
    let quiet = process::run(&mut run.hartline_command(&[&option])?, b"")?;
    let trace = fs::read_to_string(&file)?;
    let loud = process::run(&mut run.hartline_command(&["--strace"])?, b"")?;
    if quiet.code != 128 + 10 || loud.code != quiet.code || quiet.stderr_text().contains("openat") {
        return Err(format!("{quiet:?}, then {loud:?}").into());
    }
    for text in [&trace, &loud.stderr_text()] {
        for (start, end) in TRACE {
            let mut lines = text.lines().map(|line| match line.split_once("] ") {
                Some((pid, rest)) if pid.starts_with("[pid") => rest,
                _ => line,
            });
            if !lines.any(|line| line.starts_with(start) && line.contains(end)) {
                return Err(format!("no line {start} … {end} in {text}").into());
            }
        }
    }
    Ok(())
}

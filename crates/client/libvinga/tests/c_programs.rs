//! C programs, compiled against the built library and run against a data node: the examples, all features, all mistakes;
//! and once more under valgrind where there is one.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use vinga_datanode::LocalNode;

/// Folder of the crate with the header.
fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/include")
}

/// The program of this name: an example, or one of the tests'.
fn source(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = here.join(format!("tests/c/{name}.c"));
    if own.exists() { own } else { here.join(format!("../../../examples/c/{name}.c")) }
}

/// Where the library lies. Cargo does not build it for this test, so it is built here, in the same folder with the same
/// profile.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let own = std::env::current_exe().expect("the test has a file");
        let folder = own.ancestors().nth(2).expect("tests lie in deps, in the profile's folder").to_owned();
        let profile = match folder.file_name().and_then(OsStr::to_str) {
            Some("debug") | None => "dev",
            Some(other) => other,
        };
        let target = folder.parent().expect("the profile's folder lies in the target folder");
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["build", "--offline", "-p", "libvinga", "--profile", profile, "--target-dir"])
            .arg(target);
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        succeed(&mut cargo);
        assert!(folder.join("libvinga.so").exists());
        folder
    })
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    output
}

/// Compiles a program; the compiler must not find fault with it.
fn compile(name: &str) -> PathBuf {
    let library = library();
    let program = library.join(format!("c-{name}"));
    let mut compiler = Command::new("cc");
    compiler.args([
        "-std=c99",
        "-D_POSIX_C_SOURCE=200809L",
        "-g",
        "-O1",
        "-Wall",
        "-Wextra",
        "-pedantic",
        "-Werror",
    ]);
    compiler.arg("-I").arg(include()).arg(source(name)).arg("-o").arg(&program);
    compiler.arg("-L").arg(library).arg("-lvinga").arg(format!("-Wl,-rpath,{}", library.display()));
    succeed(&mut compiler);
    program
}

fn run(name: &str) -> String {
    let program = compile(name);
    let node = LocalNode::start().expect("a small node can be started");
    let output = succeed(Command::new(program).arg(node.address()));
    String::from_utf8(output.stdout).expect("they print text")
}

#[test]
fn the_blocking_example() {
    let shown = run("bank");
    assert!(shown.contains("account 1 has only 30\n"), "{shown}");
    assert!(
        shown.contains("Bob has 170\nCleo has 100\n") || shown.contains("Cleo has 100\nBob has 170\n"),
        "{shown}"
    );
    assert!(shown.ends_with("account 1: 30\naccount 2: 170\naccount 3: 100\naccount 4: none\n"), "{shown}");
}

#[test]
fn the_event_loop_example() {
    let shown = run("event_loop");
    assert!(shown.starts_with("1000 transfers, ") && shown.ends_with("; 50000 in all accounts\n"), "{shown}");
}

#[test]
fn all_features() {
    assert_eq!(run("features"), "all features work\n");
}

#[test]
fn all_mistakes() {
    assert_eq!(run("misuse"), "all mistakes were told\n");
}

/// Leaks and wrong accesses, on both sides of the border.
#[test]
fn nothing_is_leaked_or_touched_wrongly() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("there is no valgrind here: not checked");
        return;
    }
    for name in ["event_loop", "features", "misuse", "bank"] {
        let program = compile(name);
        let node = LocalNode::start().expect("a small node can be started");
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--leak-check=full", "--show-leak-kinds=definite,indirect", "--error-exitcode=99"]);
        valgrind.args(["--errors-for-leak-kinds=definite,indirect", "--fair-sched=yes", "--quiet"]);
        succeed(valgrind.arg(program).arg(node.address()));
    }
}

/// The header is good C++, too.
#[test]
fn the_header_is_clean() {
    for (compiler, language, standard) in
        [("cc", "c", "c99"), ("cc", "c", "c17"), ("c++", "c++", "c++11"), ("c++", "c++", "c++20")]
    {
        if Command::new(compiler).arg("--version").output().is_err() {
            eprintln!("there is no {compiler} here: not checked");
            continue;
        }
        let mut command = Command::new(compiler);
        command.args([
            "-x",
            language,
            &format!("-std={standard}"),
            "-Wall",
            "-Wextra",
            "-pedantic",
            "-Werror",
        ]);
        succeed(command.arg("-fsyntax-only").arg(include().join("vinga.h")));
    }
}

/// The library has exactly the functions that the header declares.
#[test]
fn the_library_is_what_the_header_says() {
    let header = std::fs::read_to_string(include().join("vinga.h")).expect("the header is there");
    let mut declared: Vec<&str> = header
        .split("VINGA_API ")
        .skip(1)
        .filter_map(|declaration| declaration.split('(').next()?.split([' ', '*']).next_back())
        .filter(|name| name.starts_with("vinga_"))
        .collect();
    declared.sort_unstable();
    let symbols =
        succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(library().join("libvinga.so")));
    let symbols = String::from_utf8(symbols.stdout).expect("symbols are text");
    let mut defined: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .filter(|name| name.starts_with("vinga_"))
        .collect();
    defined.sort_unstable();
    assert_eq!(declared, defined);
}

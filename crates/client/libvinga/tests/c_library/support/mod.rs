//! C programs: compiled against the library as it was built, and run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Folder of the crate with the header.
pub fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/include")
}

/// The header.
pub fn header() -> String {
    std::fs::read_to_string(include().join("vinga.h")).expect("the header is there")
}

/// The declarations of all functions, each on one line.
pub fn declarations(header: &str) -> Vec<String> {
    let code = header.split("VINGA_API ").skip(1).filter_map(|text| text.split(';').next());
    code.filter(|text| text.contains("vinga_"))
        .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// The name of a function that is declared so.
pub fn name_of(declaration: &str) -> &str {
    let before = declaration.split('(').next().expect("there is something");
    before.rsplit([' ', '*']).next().expect("it has a name")
}

/// The program of this name: an example, or one of the tests'.
fn source(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = here.join(format!("tests/c/{name}.c"));
    if own.exists() { own } else { here.join(format!("../../../examples/c/{name}.c")) }
}

/// Where the library lies. Cargo does not build it for this test, so it is built here, in the same folder with the same
/// profile.
pub fn library() -> &'static Path {
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
        // Programs look for it by its soname, which has the major version.
        let link = folder.join(concat!("libvinga.so.", env!("CARGO_PKG_VERSION_MAJOR")));
        let made = std::os::unix::fs::symlink("libvinga.so", &link);
        assert!(made.is_ok() || link.exists(), "{made:?}");
        folder
    })
}

/// Runs it; it must succeed.
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    output
}

/// Compiles a program; the compiler must not find fault with it. Two tests may do so at the same time.
pub fn compile(name: &str, folders: &[&Path]) -> PathBuf {
    static MADE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let library = library();
    let program = library.join(format!("c-{name}"));
    let number = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mine = library.join(format!("c-{name}.{}.{number}", std::process::id()));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-pthread", "-g", "-O1"]);
    compiler.args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-I"]).arg(include());
    for folder in folders {
        compiler.arg("-I").arg(folder);
    }
    compiler.arg(source(name)).arg("-o").arg(&mine);
    compiler.arg("-L").arg(library).arg("-lvinga").arg(format!("-Wl,-rpath,{}", library.display()));
    succeed(&mut compiler);
    std::fs::rename(&mine, &program).expect("it was just made");
    program
}

/// Whether there is valgrind.
pub fn has_valgrind() -> bool {
    let found = Command::new("valgrind").arg("--version").output().is_ok();
    if !found {
        eprintln!("there is no valgrind here: not checked");
    }
    found
}

/// The program under valgrind, which finds leaks and wrong accesses on both sides of the border.
pub fn under_valgrind(program: &Path) -> Command {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--leak-check=full", "--show-leak-kinds=definite,indirect", "--error-exitcode=99"]);
    valgrind.args(["--errors-for-leak-kinds=definite,indirect", "--fair-sched=yes", "--quiet"]);
    valgrind.arg(program);
    valgrind
}

//! What `make install` puts into place: a C program is compiled and linked against it as `pkg-config` says, and run.

use crate::support::{library, succeed};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use vinga_datanode::LocalNode;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Installs the library that was built for the tests.
fn install(variables: &[(&str, &Path)]) {
    let mut script = Command::new(workspace().join("scripts/install.sh"));
    script.arg("lib").env("BUILT", library()).env_remove("PREFIX").env_remove("LIBDIR").env_remove("DESTDIR");
    succeed(script.envs(variables.iter().copied()));
}

/// What pkg-config says of an installation.
fn pkg_config(libraries: &Path, arguments: &[&str], system: Option<&Path>) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(arguments).arg("vinga").env("PKG_CONFIG_PATH", libraries.join("pkgconfig"));
    if let Some(system) = system {
        command.env("PKG_CONFIG_SYSROOT_DIR", system);
    }
    let output = String::from_utf8(succeed(&mut command).stdout).expect("it prints text");
    output.split_whitespace().map(str::to_owned).collect()
}

fn has_pkg_config() -> bool {
    let found = Command::new("pkg-config").arg("--version").output().is_ok();
    if !found {
        eprintln!("there is no pkg-config here (scripts/install-tools.sh installs it): not checked");
    }
    found
}

fn compile(program: &Path, flags: &[String]) {
    let source = workspace().join("examples/c/bank.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c99", "-Wall", "-Werror"]).arg(source).arg("-o").arg(program).args(flags);
    succeed(&mut compiler);
}

fn run(program: &Path, libraries: Option<&Path>) {
    let node = LocalNode::start().expect("a small node can be started");
    let mut command = Command::new(program);
    command.arg(node.address()).env_remove("LD_LIBRARY_PATH");
    command.envs(libraries.map(|libraries| ("LD_LIBRARY_PATH", libraries)));
    let output = succeed(&mut command);
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("account 4: none\n"));
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("there is room");
    folder
}

#[test]
fn an_installed_library_is_found_by_pkg_config() {
    let prefix = folder("prefix");
    install(&[("PREFIX", &prefix)]);
    let libraries = prefix.join("lib");
    let soname = concat!("libvinga.so.", env!("CARGO_PKG_VERSION_MAJOR"));
    let target = std::fs::read_link(libraries.join(soname)).expect("it is a link");
    assert_eq!(target, Path::new(concat!("libvinga.so.", env!("CARGO_PKG_VERSION"))));
    assert_eq!(std::fs::read_link(libraries.join("libvinga.so")).expect("it is a link"), Path::new(soname));
    if has_pkg_config() {
        assert_eq!(pkg_config(&libraries, &["--modversion"], None), [env!("CARGO_PKG_VERSION")]);
        let program = prefix.join("bank");
        compile(&program, &pkg_config(&libraries, &["--cflags", "--libs"], None));
        // It wants the library by its soname.
        let needed = succeed(Command::new("readelf").arg("-d").arg(&program));
        assert!(String::from_utf8_lossy(&needed.stdout).contains(&format!("[{soname}]")));
        run(&program, Some(&libraries));
        // And without the shared library.
        for link in ["libvinga.so", soname] {
            std::fs::remove_file(libraries.join(link)).expect("it is there");
        }
        compile(&program, &pkg_config(&libraries, &["--static", "--cflags", "--libs"], None));
        run(&program, None);
    }
    std::fs::remove_dir_all(&prefix).expect("it is there");
}

#[test]
fn packages_are_made_with_destdir() {
    let system = folder("destdir");
    install(&[("DESTDIR", &system), ("PREFIX", Path::new("/usr")), ("LIBDIR", Path::new("/usr/lib64"))]);
    let mut files = BTreeSet::new();
    let mut open = vec![system.clone()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("it is a folder") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                open.push(path);
            } else {
                files.insert(path.strip_prefix(&system).expect("it is below").display().to_string());
            }
        }
    }
    let expected = [
        "usr/include/vinga.h",
        "usr/lib64/libvinga.a",
        "usr/lib64/libvinga.so",
        concat!("usr/lib64/libvinga.so.", env!("CARGO_PKG_VERSION_MAJOR")),
        concat!("usr/lib64/libvinga.so.", env!("CARGO_PKG_VERSION")),
        "usr/lib64/pkgconfig/vinga.pc",
        "usr/share/doc/vinga/LICENSE-APACHE",
        "usr/share/doc/vinga/LICENSE-MIT",
    ];
    assert_eq!(files, expected.map(str::to_owned).into());
    if has_pkg_config() {
        let flags = pkg_config(&system.join("usr/lib64"), &["--libs"], Some(&system));
        assert_eq!(flags, [format!("-L{}/usr/lib64", system.display()), "-lvinga".to_owned()]);
    }
    std::fs::remove_dir_all(&system).expect("it is there");
}

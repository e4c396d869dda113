//! Functions called at random with arguments of all kinds, right and wrong: each is answered, nothing crashes or leaks.
//!
//! The calls are generated from the header, so a new function takes part without being named here; a type of argument
//! that this does not know fails the test.

use crate::support::{
    compile, declarations, has_valgrind, header, library, name_of, succeed, under_valgrind,
};
use std::fmt::Write;
use std::path::PathBuf;
use vinga_datanode::LocalNode;

/// The handle's kind if this is `vinga_…` with so many stars.
fn kind(type_name: &str, stars: &str) -> Option<String> {
    const NO_HANDLES: [&str; 8] =
        ["value", "column", "description", "index", "range", "schema_event", "bytes", "bound"];
    let name = type_name.strip_prefix("const ").unwrap_or(type_name);
    let kind = name.strip_prefix("vinga_")?.strip_suffix(stars)?.trim_end();
    (!kind.contains('*') && !NO_HANDLES.contains(&kind)).then(|| format!("K_{kind}"))
}

/// An expression that draws an argument of this type and name.
fn drawn(function: &str, type_name: &str, name: &str) -> String {
    if let Some(kind) = kind(type_name, "**") {
        return format!("place({kind})");
    }
    if let Some(kind) = kind(type_name, "*") {
        return format!("any({kind})");
    }
    match (type_name, name) {
        // Nobody waits for ever in the blocking form.
        ("int", "wait_ms") if function.ends_with("_start") => "(int)draw(4) - 1",
        ("int", "wait_ms") => "(int)draw(3)",
        ("unsigned", "wait_ms" | "microseconds") => "draw(2)",
        ("const char *", "addresses") => "any_address()",
        ("const char *", "index") => "any_index()",
        ("const void *", "handle") => "any((enum kind)draw(KINDS))",
        ("int", _) => "any_int()",
        ("unsigned", _) => "any_unsigned()",
        ("size_t", _) => "any_size()",
        ("uint32_t", _) => "(uint32_t)any_unsigned()",
        ("uint64_t", _) => "any_u64()",
        // Longer waits would end with the locks of others only, who do nothing meanwhile.
        ("int64_t", "wait") => "(int64_t)draw(6) - 3",
        ("int64_t", _) => "(int64_t)any_u64()",
        ("double", _) => "(double)any_int()",
        ("const char *" | "const void *", _) => "any_text()",
        ("const char *const *", _) => "any_names()",
        ("const vinga_value *", _) => "any_values()",
        ("const vinga_range *", _) => "any_ranges()",
        ("const unsigned *", _) => "any_columns()",
        ("const int *", _) => "(const int *)any_columns()",
        ("char *", _) => "buffer_area",
        (out, _) if out.ends_with("**") || (out.ends_with('*') && !out.starts_with("const ")) => "area()",
        (other, _) => panic!("{function}: arguments of type '{other}' are not known here"),
    }
    .to_owned()
}

/// A declaration's arguments: types and names.
fn arguments(declaration: &str) -> Vec<(&str, &str)> {
    let (_, list) = declaration.split_once('(').expect("it is a function");
    let list = list.trim_end_matches(')');
    list.split(',')
        .map(str::trim)
        .filter(|argument| *argument != "void")
        .map(|argument| {
            let at = argument.rfind([' ', '*']).expect("it has a type and a name");
            let (type_name, name) = argument.split_at(at + 1);
            (type_name.trim_end(), name)
        })
        .collect()
}

/// How much a call hinders later ones: 1 if most table handles are good for nothing after it, 2 if it also tries for
/// seconds when it is in its own way.
fn harm(function: &str) -> u8 {
    let spoils = ["drop", "truncate", "rename", "alter", "fence"];
    match function {
        "vinga_table_fence" => 2,
        other => u8::from(spoils.iter().any(|word| other.contains(word))),
    }
}

/// The generated part of the program. Returns its folder.
fn generate() -> PathBuf {
    let header = header();
    let declarations = declarations(&header);
    let mut code = format!(
        "enum {{ CALLS = {} }};\n\nstatic void call(int number)\n{{\n    switch (number) {{\n",
        declarations.len()
    );
    for (number, declaration) in declarations.iter().enumerate() {
        let name = name_of(declaration);
        let arguments = arguments(declaration);
        let mut lines = String::new();
        for (type_name, argument) in &arguments {
            let value = drawn(name, type_name, argument);
            writeln!(lines, "        {type_name} {argument} = {value};").expect("it is a string");
        }
        let names: Vec<&str> = arguments.iter().map(|(_, argument)| *argument).collect();
        let call = format!("{name}({})", names.join(", "));
        let is_number = ["int ", "unsigned ", "size_t ", "uint64_t ", "int64_t "];
        let noted = if names.first() == Some(&"ret") {
            format!(
                "int wait_ = {call};\n        note_ret(call_name, ret, wait_);\n        \
                 note({number}, call_name, wait_ != 0 || ret == NULL ? 0 : *ret)"
            )
        } else if declaration.starts_with("vinga_filter *") {
            format!("keep(K_filter, {call});\n        note({number}, call_name, 0)")
        } else if is_number.iter().any(|prefix| declaration.starts_with(prefix)) {
            format!("note({number}, call_name, (long){call})")
        } else {
            format!("note({number}, call_name, {call} == NULL)")
        };
        writeln!(code, "    case {number}: {{\n        call_name = \"{name}\";\n{lines}        {noted};")
            .expect("it is a string");
        code.push_str("        break;\n    }\n");
    }
    code.push_str("    }\n}\n\nstatic const char harm[] = {");
    for declaration in &declarations {
        write!(code, "{}, ", harm(name_of(declaration))).expect("it is a string");
    }
    code.push_str("};\n");
    let folder = library().join("c-random-calls");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    std::fs::write(folder.join("random_calls.inc"), code).expect("a file can be written");
    folder
}

fn start_node() -> LocalNode {
    // Calls that wait for each other's locks are to be answered soon, and transactions that nobody ends are to go.
    LocalNode::start_with(&[
        ("TransactionDeadlockDetectionTimeout", "50"),
        ("TransactionInactiveTimeout", "500"),
    ])
    .expect("a small node can be started")
}

#[test]
fn whatever_is_called_is_answered() {
    let folder = generate();
    let program = compile("random_calls", &[&folder]);
    let node = start_node();
    for seed in 1..=6 {
        let mut command = std::process::Command::new(&program);
        let output = succeed(command.args([node.address(), &seed.to_string(), "10000"]));
        let shown = String::from_utf8(output.stdout).expect("they print text");
        let counts: Vec<usize> = shown.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [functions, good, bad] = counts[..] else { panic!("{shown}") };
        // It is no use if nearly all calls are refused at once.
        assert!(good * 10 > functions * 8 && bad * 10 > functions * 8, "{shown}");
    }
    if has_valgrind() {
        succeed(under_valgrind(&program).args([node.address(), "7", "3000"]));
    }
}

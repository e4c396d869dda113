//! Properties of every configuration: any text is read or refused in one line, never with a panic; and a placement
//! gives every piece of work exactly one host.

use vinga_config::threads::ThreadKind;
use vinga_config::{
    Affinity, ConfigErrors, ConfigFile, Configuration, Cpu, CpuSet, Machine, Parameter, Placement,
    Scheduling, thread_config,
};

/// SplitMix64: the same cases in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_of<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len())]
    }
}

fn machine(cpus: u16) -> Machine {
    Machine { memory_bytes: 16 << 30, cpus: (0..cpus).map(Cpu).collect(), cpus_granted: None }
}

/// Checks the invariants of every placement.
fn assert_sound(placement: &Placement, machine: &Machine, case: &str) {
    let executors = placement.executors();
    let count =
        |test: &dyn Fn(&vinga_config::ThreadPlan) -> bool| executors.iter().filter(|plan| test(plan)).count();

    let runs: Vec<u16> = executors.iter().flat_map(|plan| plan.data_managers.clone()).collect();
    let all: Vec<u16> = (0..placement.data_managers).collect();
    assert_eq!(runs, all, "{case}: each data manager has one host");
    let hosts = || executors.iter().map(|plan| plan.data_managers.len()).filter(|&hosted| hosted > 0);
    assert!(
        hosts().max().unwrap_or(0) - hosts().min().unwrap_or(0) <= 1,
        "{case}: data managers are spread evenly"
    );

    let coordinators: Vec<u16> = executors.iter().filter_map(|plan| plan.coordinator).collect();
    assert_eq!(
        coordinators,
        (0..placement.coordinators).collect::<Vec<_>>(),
        "{case}: coordinators in order"
    );
    assert!(placement.coordinators > 0, "{case}");
    assert_eq!(count(&|plan| plan.hosts_main), 1, "{case}: main has one host");
    assert_eq!(count(&|plan| plan.hosts_events), 1, "{case}: rep has one host");
    assert!(count(&|plan| plan.owns_sockets) > 0, "{case}: a thread reads");
    let senders = count(&|plan| plan.kind == ThreadKind::Sender);
    assert!(count(&|plan| plan.owns_sockets && !plan.sends) == 0 || senders > 0, "{case}: a thread writes");

    assert_eq!(placement.threads.len(), executors.len() + 2, "{case}: io and wd have one plan each");
    assert_eq!((placement.files().spin_us, placement.watchdog().spin_us), (0, 0), "{case}");
    let mut names: Vec<_> = placement.threads.iter().map(|plan| (plan.kind.name(), plan.index)).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), placement.threads.len(), "{case}: no two threads have a name");

    let mut sets: Vec<CpuSet> = Vec::new();
    for plan in &placement.threads {
        assert!(plan.spin_us <= 500, "{case}");
        assert!(!matches!(plan.scheduling, Scheduling::Priority(11..)), "{case}");
        assert!(!plan.to_string().contains('\n'), "{case}");
        match plan.affinity {
            Affinity::Any => {}
            Affinity::One(cpu) => assert!(machine.cpus.contains(cpu), "{case}"),
            Affinity::Set(set) => {
                assert!(set.iter().all(|cpu| machine.cpus.contains(cpu)), "{case}");
                sets.push(set);
            }
        }
    }
    for (i, set) in sets.iter().enumerate() {
        let alone = |other: &CpuSet| set == other || set.intersection(other).is_empty();
        assert!(sets[..i].iter().all(alone), "{case}: a CPU belongs to one set");
        let bound = |plan: &vinga_config::ThreadPlan| match plan.affinity {
            Affinity::One(cpu) => set.contains(cpu),
            Affinity::Any | Affinity::Set(_) => false,
        };
        assert!(!placement.threads.iter().any(bound), "{case}: no thread is bound into a set");
    }
}

/// An error for people: one line, not endless, with a quotation.
fn assert_readable(message: &str, case: &str) {
    assert!(!message.contains(char::is_control), "{case}: {message:?}");
    assert!(message.len() < 4_000, "{case}: {} bytes", message.len());
    assert!(message.contains('\''), "{case}: {message}");
}

fn assert_all_readable(errors: &ConfigErrors, case: &str) {
    errors.iter().for_each(|error| assert_readable(&error.to_string(), case));
}

fn place(flags: &[(&str, &str)], machine: &Machine) -> bool {
    let case = format!("{flags:?}");
    match Configuration::new(None, flags, machine) {
        Ok(configuration) => {
            assert_sound(&configuration.placement, machine, &case);
            configuration.warnings.iter().for_each(|warning| assert_readable(warning, &case));
            true
        }
        Err(errors) => {
            assert_all_readable(&errors, &case);
            false
        }
    }
}

const KINDS: [&str; 12] =
    ["ldm", "tc", "recv", "send", "main", "rep", "io", "wd", "worker", "watchdog", "idxbld", "LDM"];
const KEYS: [&str; 7] = ["count", "cpubind", "cpuset", "realtime", "spintime", "thread_prio", "nosend"];
const VALUES: [&str; 16] = [
    "0",
    "1",
    "2",
    "4",
    "8",
    "12",
    "501",
    "0-3",
    "4-7",
    "0,2",
    "7-4",
    "1024",
    "x",
    "",
    "1,1",
    "99999999999999999999",
];
const OTHERS: [&str; 16] =
    ["=", "{", "}", ",", "={", "},", "-", " ", "\t", ";", "#", "é", "\u{0}", "\n", "'", "cpubind_exclusive"];

#[test]
fn any_sequence_of_tokens_is_read_or_refused() {
    let mut random = Random(1);
    for _ in 0..200_000 {
        let mut text = String::new();
        for _ in 0..random.below(12) {
            let tokens: &[&str] = match random.below(6) {
                0 => &KINDS,
                1 => &KEYS,
                2 => &VALUES,
                _ => &OTHERS,
            };
            text.push_str(random.one_of(tokens));
        }
        if let Err(errors) = thread_config::parse(&text, &mut Vec::new()) {
            for error in errors {
                assert_readable(&error.at(vinga_config::Origin::Flag).to_string(), &text);
            }
        }
    }
}

#[test]
fn groups_of_the_right_form_are_placed_soundly_or_refused() {
    let mut random = Random(2);
    let mut placed = 0;
    for _ in 0..200_000 {
        let mut groups: Vec<String> = Vec::new();
        for _ in 0..=random.below(5) {
            let mut settings: Vec<String> = Vec::new();
            for key in KEYS {
                // Most values are small and fit their key, so that many cases become placements.
                let value = match (key, random.below(40)) {
                    (_, 0) => random.one_of(&VALUES),
                    ("count", 1..10) => random.one_of(&["0", "1", "2", "4"]),
                    ("cpubind", 1..5) => random.one_of(&["0-7", "5,4,3,2", "1", "6-7"]),
                    ("cpuset", 5..9) => random.one_of(&["0-3", "4-7", "8,9"]),
                    ("realtime" | "nosend", 1..5) => random.one_of(&["0", "1"]),
                    ("spintime", 1..4) => random.one_of(&["0", "50", "500"]),
                    ("thread_prio", 1..3) => "10",
                    _ => continue,
                };
                settings.push(format!("{key}={value}"));
            }
            let kind = random.one_of(&KINDS[..9]);
            groups.push(if settings.is_empty() {
                kind.into()
            } else {
                format!("{kind}={{{}}}", settings.join(","))
            });
        }
        let text = groups.join(",");
        let mut flags = vec![("ThreadConfig", text.as_str())];
        for (name, values) in [
            ("LockExecuteThreadToCPU", &["0-9", "8,9", "3", "10"][..]),
            ("LockMaintThreadsToCPU", &["9", "8-9", "0-3"]),
            ("RealtimeScheduler", &["1"]),
            ("SchedulerSpinTimer", &["100"]),
            ("NoOfFragmentLogParts", &["4", "6", "32"]),
        ] {
            if random.below(5) == 0 {
                flags.push((name, random.one_of(values)));
            }
        }
        placed += usize::from(place(&flags, &machine(10)));
    }
    assert!(placed > 20_000, "only {placed} of the cases became placements");
}

#[test]
fn every_number_of_execution_threads_and_of_cpus_is_placed() {
    for number in 2..=72 {
        let text = number.to_string();
        let threads = ("MaxNoOfExecutionThreads", text.as_str());
        assert!(place(&[threads], &machine(80)));
        assert!(place(&[threads, ("LockExecuteThreadToCPU", "79,0-78")], &machine(80)));
        // Refused from 9 on, because those have tc threads.
        assert_eq!(place(&[threads, ("LockExecuteThreadToCPU", "1-2")], &machine(80)), number <= 8);
    }
    for cpus in 1..=1024 {
        assert!(place(&[], &machine(cpus)));
        assert!(place(&[("LockExecuteThreadToCPU", "0")], &machine(cpus)));
    }
}

#[test]
fn a_grant_of_cpu_time_bounds_the_workers() {
    let granted = |cpus_granted| {
        let machine = Machine { cpus_granted, ..machine(12) };
        let configuration = Configuration::new(None, &[], &machine).expect("no error");
        configuration.placement.executors().len()
    };
    assert_eq!([None, Some(0), Some(2), Some(4), Some(500)].map(granted), [10, 1, 1, 3, 10]);
}

#[test]
fn any_file_is_read_or_refused() {
    const PIECES: [&str; 28] = [
        "[data]",
        "[data default]",
        "[cluster]",
        "[mysqld]",
        "[",
        "]",
        "[x]",
        "\n",
        "\n",
        "\n",
        "\r\n",
        "=",
        ":",
        " ",
        "#",
        ";",
        "\"",
        "'",
        "DataMemory",
        "NodeId=",
        "ThreadConfig=ldm={count=2}",
        "Name=a",
        "1G",
        "1",
        "é",
        "\u{feff}",
        "\u{1}",
        "LockExecuteThreadToCPU=0-3",
    ];
    let mut random = Random(3);
    let machine = machine(4);
    for _ in 0..200_000 {
        let text: String = (0..random.below(24)).map(|_| random.one_of(&PIECES)).collect();
        match Configuration::new(Some(&ConfigFile::parse("f", &text)), &[], &machine) {
            Ok(configuration) => assert_sound(&configuration.placement, &machine, &text),
            Err(errors) => assert_all_readable(&errors, &text),
        }
    }
}

/// Whatever the sections say, the nodes form complete groups and have places of their own.
#[test]
fn several_data_nodes_form_groups_or_are_refused() {
    let mut random = Random(4);
    let machine = machine(2);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut text = String::from("[data default]\n");
        text.push_str(random.one_of(&[
            "",
            "NoOfReplicas=2\n",
            "NoOfReplicas=2\n",
            "NoOfReplicas=3\n",
            "NoOfReplicas=4\n",
        ]));
        text.push_str(random.one_of(&["", "ServerPort=2202\n", "Diskless=yes\n"]));
        for node in 0..2 + random.below(5) {
            let port =
                if random.below(12) == 0 { String::new() } else { format!("ServerPort={}\n", 1 + node) };
            let id = match random.below(4) {
                0 => format!("NodeId={}\n", 1 + random.below(12)),
                _ => String::new(),
            };
            let group = match random.below(4) {
                0 => format!("NodeGroup={}\n", random.below(3)),
                _ => String::new(),
            };
            let host = random.one_of(&["", "HostName=db1\n", "HostName=db2\n"]);
            text.push_str(&format!("[data]\n{id}{group}{host}{port}"));
        }
        let file = ConfigFile::parse("f", &text);
        let own = file.data_node_ids()[0].to_string();
        match Configuration::new(Some(&file), &[("NodeId", &own)], &machine) {
            Ok(configuration) => {
                assert_several_sound(&configuration, &text);
                accepted += 1;
            }
            Err(errors) => assert_all_readable(&errors, &text),
        }
    }
    assert!(accepted > 2_000, "only {accepted} of the cases became clusters");
}

fn assert_several_sound(configuration: &Configuration, case: &str) {
    let nodes = &configuration.data_nodes;
    let all = nodes.all();
    assert!(all.windows(2).all(|pair| pair[0].node < pair[1].node), "{case}: numbers ascend");
    for group in 0..nodes.groups() {
        let members = all.iter().filter(|node| node.group == group).count();
        assert_eq!(members, usize::from(nodes.replicas()), "{case}: group {group} is complete");
    }
    assert_eq!(usize::from(nodes.groups() * u16::from(nodes.replicas())), all.len(), "{case}");
    let mut places: Vec<(String, u16)> =
        all.iter().map(|node| (node.host.to_lowercase(), node.port)).collect();
    assert!(places.iter().all(|(_, port)| *port > 0), "{case}: the others know each port");
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), all.len(), "{case}: each has a place of its own");
    assert!(configuration.parameters.flag(Parameter::Diskless), "{case}: nothing is kept on disk");
}

#[test]
fn huge_pieces_give_short_errors() {
    let long = "a".repeat(1_000_000);
    let commas = ",".repeat(16_000);
    let groups = ["io"; 5_000].join(",");
    let cpus = ["0"; 5_000].join(",");
    let digits = "9".repeat(16_000);
    for (name, value) in [
        (long.as_str(), "1"),
        ("HostName", &long),
        ("ThreadConfig", &long),
        ("ThreadConfig", &commas),
        ("ThreadConfig", &groups),
        ("ThreadConfig", &format!("ldm={{cpubind={cpus}}}")),
        ("ThreadConfig", &format!("ldm={{count={digits}}}")),
        ("LockExecuteThreadToCPU", &cpus),
        ("LockExecuteThreadToCPU", &digits),
        ("DataMemory", &digits),
    ] {
        assert!(!place(&[(name, value)], &machine(4)), "{name}");
        let file = ConfigFile::parse("f", &format!("[data]\n{name}={value}\n"));
        let errors = Configuration::new(Some(&file), &[], &machine(4)).expect_err("an error");
        assert_all_readable(&errors, name);
    }
    let nodes = ConfigFile::parse("f", &"[data]\n".repeat(100_000));
    let errors = Configuration::new(Some(&nodes), &[], &machine(4)).expect_err("too many nodes");
    assert_all_readable(&errors, "nodes");
    let lines = ConfigFile::parse("f", &format!("[data]\n{}", "x\n".repeat(100_000)));
    let errors = Configuration::new(Some(&lines), &[], &machine(4)).expect_err("no configuration");
    assert_eq!(errors.iter().count(), 100_000);
    assert!(errors.to_string().len() < 10_000, "{errors}");
}

/// Examples from texts about NDB's run-time environment.
#[test]
fn well_known_examples_are_read() {
    for text in [
        "ldm={count=4,cpubind=0-3},main={cpubind=4},tc={count=2,cpuset=5-6},send={count=1,cpuset=5-6},recv={cpuset=5-6},\
         rep={cpubind=4},io={cpubind=7},wd={cpubind=7}",
        "ldm={cpubind=0},ldm={cpubind=1},ldm={cpubind=2},ldm={cpubind=3}",
        "ldm={count=4,cpubind=0-3,spintime=50},main={cpubind=4,realtime=1},rep={cpubind=5,realtime=0}",
        "ldm={count=4,cpuset=0-3},main={cpuset=4-7},rep={cpuset=4-7},tc={count=2,cpuset=4-7},send={count=2,cpuset=4-7},\
         recv={count=2,cpuset=4-7},io={cpuset=4-7},wd={cpuset=4-7}",
        "main,rep,recv,ldm={ cpubind = 1- 2, 5 , count = 2 },ldm,ldm",
        "ldm={},tc",
    ] {
        assert!(place(&[("ThreadConfig", text)], &machine(8)), "{text}");
    }
    // Twelve data managers, each on a core of its own on two sockets; the remaining CPUs of both sockets serve the
    // others.
    let two_sockets = "ldm={count=12,cpubind=0-11},tc={count=4,cpuset=12-17,36-41},send={count=4,cpuset=12-17,36-41},\
                       recv={count=4,cpuset=12-17,36-41},main={cpuset=18-19},rep={cpuset=18-19},io={cpuset=18-19},\
                       wd={cpuset=18-19}";
    assert!(place(&[("ThreadConfig", two_sockets), ("NoOfFragmentLogParts", "12")], &machine(48)));
}

#[test]
fn flags_override_the_file_and_the_node_overrides_its_default() {
    let text =
        "[data default]\nServerPort=1\nDataDir=/a\nHostName=x\n[data]\nNodeId=2\nServerPort=2\nDataDir=/b\n";
    let file = ConfigFile::parse("f", text);
    let configuration =
        Configuration::new(Some(&file), &[("server_port", "3")], &machine(1)).expect("no error").parameters;
    assert_eq!(configuration.integer(Parameter::NodeId), 2);
    assert_eq!(configuration.integer(Parameter::ServerPort), 3);
    assert_eq!(configuration.text(Parameter::DataDir), Some("/b"));
    assert_eq!(configuration.text(Parameter::HostName), Some("x"));
    assert_eq!(configuration.origin(Parameter::DataDir).to_string(), "f line 8");
}

#[test]
fn there_are_as_many_partitions_as_hosting_threads_unless_configured() {
    let partitions = |flags: &[(&str, &str)], cpus| {
        Configuration::new(None, flags, &machine(cpus))
            .map(|configuration| configuration.placement.partitions_per_node)
            .map_err(|error| error.to_string())
    };
    assert_eq!(partitions(&[], 2), Ok(1));
    assert_eq!(partitions(&[], 8), Ok(6));
    assert_eq!(partitions(&[("ThreadConfig", "ldm={count=4},tc,main")], 8), Ok(4));
    assert_eq!(partitions(&[("PartitionsPerNode", "8")], 2), Ok(8));
    let refused = partitions(&[("PartitionsPerNode", "9")], 2).expect_err("there are 8 data managers");
    assert!(refused.contains("PartitionsPerNode") && refused.contains("1 to 8"), "{refused}");
}

//! The report as text.

use super::Report;
use std::fmt;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            None => writeln!(f, "Programs can run on this host.\n")?,
            Some(problem) => writeln!(f, "Programs cannot run on this host: {problem}\n")?,
        }
        row(f, "kernel", &self.kernel)?;
        row(f, "processor", &self.processor)?;
        row(
            f,
            "machine",
            self.hypervisor.as_deref().unwrap_or("bare metal"),
        )?;
        self.write_kvm(f)?;
        self.write_memory(f)?;
        self.write_features(f)?;
        if let Some(costs) = &self.costs {
            row(
                f,
                "exit and back, CPL 3",
                &format!("{:.1} µs", costs.exit_us),
            )?;
            let (create, destroy) = (costs.vm_create_us, costs.vm_destroy_us);
            row(
                f,
                "VM create, destroy",
                &format!("{create:.0} µs, {destroy:.0} µs"),
            )?;
        }
        let others = self.interrupt_modes.iter();
        let others: Vec<_> = others.filter(|&&mode| mode != self.interrupts).collect();
        let mut modes = self.interrupts.to_string();
        for mode in others {
            modes += &format!(", or {mode}");
        }
        row(f, "interrupt mode", &modes)?;
        for advice in &self.advice {
            writeln!(f, "\n* {}\n  change: {}", advice.problem, advice.change)?;
        }
        Ok(())
    }
}

impl Report {
    fn write_kvm(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let api = match self.kvm_api_version {
            Some(version) => format!("{}, API version {version}", self.kvm),
            None => format!("{}, no usable device", self.kvm),
        };
        row(f, "KVM", &api)?;
        let v = &self.virtualization;
        row(f, "EPT or NPT", switch(v.nested_paging))?;
        row(f, "unrestricted guest", switch(v.unrestricted_guest))?;
        row(f, "APICv or AVIC", switch(v.interrupt_virtualization))?;
        if !self.capabilities.is_empty() {
            let values = self
                .capabilities
                .iter()
                .map(|(name, value)| format!("{name}={value}"));
            wrapped(f, "capabilities", values)?;
            let reachable = match &self.reachable()[..] {
                [] => "nothing that a guest does not need".to_owned(),
                reachable => format!("also {}", reachable.join(", ")),
            };
            row(f, "reached by guests", &reachable)?;
        }
        Ok(())
    }

    fn write_memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = &self.memory;
        let transparent = match m.transparent_huge_pages.as_str() {
            "" => "not in this kernel".to_owned(),
            setting => format!("{setting}, defragmentation {}", m.defragmentation),
        };
        row(f, "huge pages", &transparent)?;
        let reserved = format!("{} of 2 MiB, {} free", m.hugetlb_pages, m.hugetlb_free);
        row(f, "reserved huge pages", &reserved)?;
        row(f, "overcommitment", &m.overcommit.to_string())?;
        let t = &self.tuning;
        let swap = match t.swap {
            0 => "none".to_owned(),
            bytes => format!("{} MiB", bytes >> 20),
        };
        row(f, "swap", &swap)?;
        row(f, "KSM", switch(Some(t.same_page_merging)))?;
        row(f, "SMT", t.smt.map_or("unknown", |smt| switch(Some(smt))))?;
        let polling = t.halt_poll_ns.map(|ns| format!("{} µs", ns / 1000));
        row(f, "halt polling", polling.as_deref().unwrap_or("unknown"))?;
        let controllers = match t.cgroup_controllers.is_empty() {
            true => "no controllers",
            false => &t.cgroup_controllers.join(" "),
        };
        let quick = match t.favordynmods {
            Some(true) => ", favordynmods",
            _ => "",
        };
        row(f, "cgroup version 2", &format!("{controllers}{quick}"))?;
        let possible = |lacking: &Option<String>| match lacking {
            None => "possible".to_owned(),
            Some(why) => format!("not possible: {why}"),
        };
        #[cfg(feature = "client")]
        {
            row(f, "limits of machines", &possible(&self.service.limits))?;
            row(f, "networks of tenants", &possible(&self.service.networks))?;
            let installed = match &self.installation {
                None => "not installed",
                Some(installation) => match &installation.unit {
                    None => "configured, no unit",
                    Some(unit) => unit.active.as_str(),
                },
            };
            row(f, "hartlined", installed)?;
        }
        row(f, "core scheduling", &possible(&self.core_scheduling))
    }

    fn write_features(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (works, fails): (Vec<_>, Vec<_>) = self.features.iter().partition(|x| x.works);
        if !works.is_empty() {
            wrapped(f, "work in a guest", works.iter().map(|x| x.name.clone()))?;
        }
        for finding in fails {
            row(
                f,
                "does not work",
                &format!("{}: {}", finding.name, finding.reason),
            )?;
        }
        if !self.target_features.is_empty() {
            let used = self.target_features.split(',').map(str::to_owned);
            wrapped(f, "translated for", used)?;
        }
        Ok(())
    }
}

fn switch(value: Option<bool>) -> &'static str {
    match value {
        Some(true) => "on",
        Some(false) => "off",
        None => "not with this KVM",
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, value: &str) -> fmt::Result {
    writeln!(f, "{name:<22}{value}")
}

/// A row with several values, broken at 100 columns.
fn wrapped(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    values: impl Iterator<Item = String>,
) -> fmt::Result {
    let (mut name, mut line) = (name, String::new());
    for value in values {
        if line.len() + value.len() > 76 {
            row(f, name, line.trim_end())?;
            line.clear();
            name = "";
        }
        line += &value;
        line.push(' ');
    }
    row(f, name, line.trim_end())
}

//! The nftables table that filters packets of tenants' networks on the host.
//!
//! Its chains match interfaces by a name prefix, so they also apply to networks that are made
//! later. They are loaded in one transaction.

use super::public::{NOT_PUBLIC, NOT_PUBLIC6};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Prefix of the names of the host's ends of tenants' networks.
pub const INTERFACE: &str = "hlt";

/// Maximum number of counted tenants: more than have networks.
const SETS: u32 = 65_535;

/// The table, for nft(8), which replaces an existing one. `range` and `range6` contain the networks
/// of all tenants. Their machines reach the addresses in `allowed`, and, if `outbound`, public
/// addresses that are not the host's. Allowing a tenant's network does not allow its gateway, the
/// host.
pub fn table(range: Ipv4Net, range6: Option<Ipv6Net>, allowed: &[IpNet], outbound: bool) -> String {
    let (allowed4, allowed6): (Vec<_>, Vec<_>) = allowed
        .iter()
        .partition(|network| matches!(network, IpNet::V4(_)));
    let (elements4, elements6) = (elements(&allowed4), elements(&allowed6));
    let otherwise = if outbound { "accept" } else { "drop" };
    let (denied6, arriving6, to_host6, leaving6) = match range6 {
        None => (
            NOT_PUBLIC6.to_owned(),
            format!("iifname \"{INTERFACE}*\" meta nfproto ipv6 drop"),
            String::new(),
            String::new(),
        ),
        // Neighbour discovery on the link must work.
        Some(range6) => (
            format!("{NOT_PUBLIC6}, {range6}"),
            String::new(),
            format!(
                "iifname \"{INTERFACE}*\" icmpv6 type {{ nd-neighbor-solicit, \
                 nd-neighbor-advert }} accept\n        \
                 iifname \"{INTERFACE}*\" ip6 daddr {range6} drop\n        \
                 iifname \"{INTERFACE}*\" ip6 daddr @allowed6 accept"
            ),
            format!("ip6 saddr {range6} oifname != \"{INTERFACE}*\" masquerade"),
        ),
    };
    // The first command makes a missing table, so that the second can delete the table.
    format!(
        r#"table inet hartline
delete table inet hartline
table inet hartline {{
    set allowed {{
        type ipv4_addr; flags interval; auto-merge
        {elements4}
    }}
    set allowed6 {{
        type ipv6_addr; flags interval; auto-merge
        {elements6}
    }}
    set denied {{
        type ipv4_addr; flags interval; auto-merge
        elements = {{ {NOT_PUBLIC}, {range} }}
    }}
    set denied6 {{
        type ipv6_addr; flags interval; auto-merge
        elements = {{ {denied6} }}
    }}
    chain arriving {{
        type filter hook prerouting priority raw; policy accept
        {arriving6}
        iifname "{INTERFACE}*" fib saddr . iif oif missing drop
    }}
    chain to_host {{
        type filter hook input priority filter; policy accept
        iifname "{INTERFACE}*" ct state established,related accept
        iifname "{INTERFACE}*" ip daddr {range} drop
        iifname "{INTERFACE}*" ip daddr @allowed accept
        {to_host6}
        iifname "{INTERFACE}*" drop
    }}
    chain through_host {{
        type filter hook forward priority filter; policy accept
        iifname "{INTERFACE}*" ct state established,related accept
        iifname "{INTERFACE}*" ip daddr @allowed accept
        iifname "{INTERFACE}*" ip6 daddr @allowed6 accept
        iifname "{INTERFACE}*" ip daddr @denied drop
        iifname "{INTERFACE}*" ip6 daddr @denied6 drop
        iifname "{INTERFACE}*" oifname != "{INTERFACE}*" {otherwise}
        iifname "{INTERFACE}*" drop
        oifname "{INTERFACE}*" ct state established,related accept
        oifname "{INTERFACE}*" drop
    }}
    chain leaving {{
        type nat hook postrouting priority srcnat; policy accept
        ip saddr {range} oifname != "{INTERFACE}*" masquerade
        {leaving6}
    }}
}}
"#
    )
}

/// The table of senders of ARP packets, for nft(8). The host knows neighbours on an interface only by
/// addresses of its own network: entries for other addresses could fill the neighbour table, which
/// all tenants share. The set keeps its elements when the table is loaded again.
pub fn senders(networks: &[(u32, Ipv4Net)]) -> String {
    let element = |(index, network): &(u32, Ipv4Net)| {
        format!("add element arp hartline_senders own {{ \"{INTERFACE}{index}\" . {network} }}\n")
    };
    let elements: String = networks.iter().map(element).collect();
    format!(
        r#"table arp hartline_senders {{
    set own {{ type ifname . ipv4_addr; flags interval; }}
    chain arriving {{ type filter hook input priority filter; policy accept; }}
}}
flush chain arp hartline_senders arriving
table arp hartline_senders {{
    chain arriving {{
        iifname "{INTERFACE}*" iifname . arp saddr ip != @own drop
    }}
}}
{elements}"#
    )
}

/// Limits of the traffic of one tenant's machines together beyond their own network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections that the machines have opened, at once.
    pub connections: u32,
    /// New connections per second.
    pub new_connections: u32,
    /// Bytes per second, sent, and received.
    pub bandwidth: u64,
    /// Packets per second, sent, and received.
    pub packets: u32,
}

/// The table of limits, for nft(8). It counts per host end of a network, that is, per tenant.
/// Reloading keeps the counts: a rule counts in a set, and sets are not deleted. A set has the
/// limit in its name, because its elements keep the limit that they were made with.
pub fn limits(limits: Limits) -> String {
    let Limits {
        connections,
        new_connections,
        bandwidth,
        packets,
    } = limits;
    // A burst of nft(8) has 32 bits. One read of a fast interface must fit.
    let burst = bandwidth.clamp(1 << 20, u32::MAX.into());
    let sets = [
        format!("connections_{connections}"),
        format!("new_connections_{new_connections}"),
        format!("sent_bytes_{bandwidth}"),
        format!("sent_packets_{packets}"),
        format!("received_bytes_{bandwidth}"),
        format!("received_packets_{packets}"),
    ];
    // An element with a connection count ends with its last connection.
    let declare = |(index, set): (usize, &String)| match index {
        0 => format!("    set {set} {{ typeof iifname; size {SETS}; flags dynamic; }}\n"),
        _ => format!(
            "    set {set} {{ typeof iifname; size {SETS}; flags dynamic,timeout; timeout 1m; }}\n"
        ),
    };
    let declared: String = sets.iter().enumerate().map(declare).collect();
    let [
        held,
        new,
        sent_bytes,
        sent_packets,
        received_bytes,
        received_packets,
    ] = sets;
    let bytes = format!("limit rate over {bandwidth} bytes/second burst {burst} bytes");
    let packets = format!("limit rate over {packets}/second burst {packets} packets");
    format!(
        r#"table inet hartline_limits {{
{declared}    chain sent {{ type filter hook prerouting priority raw; policy accept; }}
    chain connections {{ type filter hook prerouting priority mangle; policy accept; }}
    chain received {{ type filter hook postrouting priority mangle; policy accept; }}
}}
flush chain inet hartline_limits sent
flush chain inet hartline_limits connections
flush chain inet hartline_limits received
table inet hartline_limits {{
    chain sent {{
        iifname "{INTERFACE}*" update @{sent_packets} {{ iifname {packets} }} drop
        iifname "{INTERFACE}*" update @{sent_bytes} {{ iifname {bytes} }} drop
    }}
    chain connections {{
        iifname "{INTERFACE}*" ct state new update @{new} {{ iifname limit rate over {new_connections}/second burst {new_connections} packets }} drop
        iifname "{INTERFACE}*" ct state new add @{held} {{ iifname ct count over {connections} }} drop
    }}
    chain received {{
        oifname "{INTERFACE}*" update @{received_packets} {{ oifname {packets} }} drop
        oifname "{INTERFACE}*" update @{received_bytes} {{ oifname {bytes} }} drop
    }}
}}
"#
    )
}

/// The elements of a set; an empty set has no such line.
fn elements(networks: &[&IpNet]) -> String {
    let texts: Vec<_> = networks.iter().map(ToString::to_string).collect();
    match texts.is_empty() {
        true => String::new(),
        false => format!("elements = {{ {} }}", texts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named_by_their_values() {
        let limits = |connections| {
            limits(Limits {
                connections,
                new_connections: 7,
                bandwidth: 1000,
                packets: 50,
            })
        };
        let (some, more) = (limits(20), limits(30));
        for (text, set) in [(&some, "@connections_20 {"), (&more, "@connections_30 {")] {
            assert!(text.contains(set), "{text}");
            assert!(
                text.contains("1000 bytes/second burst 1048576 bytes"),
                "{text}"
            );
            assert!(!text.contains("delete"), "{text}");
        }
        assert!(some.contains("ct count over 20"), "{some}");
    }

    #[test]
    fn networks_have_their_own_senders() {
        let networks = [(0, "10.213.0.0/24"), (7, "10.213.7.0/24")];
        let networks = networks.map(|(index, network)| (index, network.parse().unwrap()));
        let text = senders(&networks);
        assert!(text.contains("own { \"hlt0\" . 10.213.0.0/24 }"), "{text}");
        assert!(text.contains("own { \"hlt7\" . 10.213.7.0/24 }"), "{text}");
        assert!(!senders(&[]).contains("add element"), "{text}");
    }

    #[test]
    fn the_table_says_what_is_configured() {
        let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
        let closed = table(net("203.0.113.0/24"), None, &[], false);
        assert!(!closed.contains("elements = { }"), "{closed}");
        assert!(closed.contains("224.0.0.0/3, 203.0.113.0/24 }"), "{closed}");
        assert!(closed.contains("oifname != \"hlt*\" drop"), "{closed}");
        assert!(closed.contains("meta nfproto ipv6 drop"), "{closed}");
        let allowed = ["10.1.0.0/16", "fd01::/64", "192.0.2.7/32"];
        let allowed = allowed.map(|text| text.parse::<IpNet>().unwrap());
        let range6 = "fd12::/48".parse().ok();
        let open = table(net("10.213.0.0/16"), range6, &allowed, true);
        let elements = "elements = { 10.1.0.0/16, 192.0.2.7/32 }";
        assert!(open.contains(elements), "{open}");
        assert!(open.contains("elements = { fd01::/64 }"), "{open}");
        assert!(open.contains("3fff::/20, fd12::/48 }"), "{open}");
        assert!(open.contains("ip6 saddr fd12::/48 oifname"), "{open}");
        assert!(open.contains("oifname != \"hlt*\" accept"), "{open}");
        assert!(!open.contains("meta nfproto ipv6 drop"), "{open}");
    }
}

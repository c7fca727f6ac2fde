//! What packets of tenants' networks may pass the host: a table of nftables.
//!
//! Its chains look at interfaces by the beginning of their name, so they hold for networks
//! that are made later too, and are loaded in one transaction.

use ipnet::Ipv4Net;
use std::fmt::Write;

/// What names of the host's ends of tenants' networks begin with.
pub const INTERFACE: &str = "hlt";

/// Addresses that lead to no public network (RFC 6890), groups, and reserved ones.
const NOT_PUBLIC: &str = "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, \
    172.16.0.0/12, 192.0.0.0/24, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/3";

/// The table, for nft(8), in place of the one that there was. `range` has the networks of all
/// tenants. Their machines reach what is in `allowed`, and, if `outbound`, public addresses
/// that are not the host's. Allowing a tenant's network does not allow its gateway, the host.
pub fn table(range: Ipv4Net, allowed: &[Ipv4Net], outbound: bool) -> String {
    let mut elements = String::new();
    for network in allowed {
        let separator = if elements.is_empty() {
            "elements = { "
        } else {
            ", "
        };
        // Writing to a string cannot fail.
        let _ = write!(elements, "{separator}{network}");
    }
    if !elements.is_empty() {
        elements += " }";
    }
    let otherwise = if outbound { "accept" } else { "drop" };
    // The first two commands are for a table that is there, or not, before.
    format!(
        r#"table inet hartline
delete table inet hartline
table inet hartline {{
    set allowed {{
        type ipv4_addr; flags interval; auto-merge
        {elements}
    }}
    set denied {{
        type ipv4_addr; flags interval; auto-merge
        elements = {{ {NOT_PUBLIC}, {range} }}
    }}
    chain arriving {{
        type filter hook prerouting priority raw; policy accept
        iifname "{INTERFACE}*" meta nfproto ipv6 drop
        iifname "{INTERFACE}*" fib saddr . iif oif missing drop
    }}
    chain to_host {{
        type filter hook input priority filter; policy accept
        iifname "{INTERFACE}*" ct state established,related accept
        iifname "{INTERFACE}*" ip daddr {range} drop
        iifname "{INTERFACE}*" ip daddr @allowed accept
        iifname "{INTERFACE}*" drop
    }}
    chain through_host {{
        type filter hook forward priority filter; policy accept
        iifname "{INTERFACE}*" ct state established,related accept
        iifname "{INTERFACE}*" ip daddr @allowed accept
        iifname "{INTERFACE}*" ip daddr @denied drop
        iifname "{INTERFACE}*" oifname != "{INTERFACE}*" {otherwise}
        iifname "{INTERFACE}*" drop
        oifname "{INTERFACE}*" ct state established,related accept
        oifname "{INTERFACE}*" drop
    }}
    chain leaving {{
        type nat hook postrouting priority srcnat; policy accept
        ip saddr {range} oifname != "{INTERFACE}*" masquerade
    }}
}}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_is_configured() {
        let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
        let closed = table(net("203.0.113.0/24"), &[], false);
        assert!(!closed.contains("elements = { }"), "{closed}");
        assert!(closed.contains("224.0.0.0/3, 203.0.113.0/24 }"), "{closed}");
        assert!(closed.contains("oifname != \"hlt*\" drop"), "{closed}");
        let allowed = [net("10.1.0.0/16"), net("192.0.2.7/32")];
        let open = table(net("10.213.0.0/16"), &allowed, true);
        let elements = "elements = { 10.1.0.0/16, 192.0.2.7/32 }";
        assert!(open.contains(elements), "{open}");
        assert!(open.contains("oifname != \"hlt*\" accept"), "{open}");
    }
}

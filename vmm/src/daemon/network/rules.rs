//! What packets of tenants' networks may pass the host: a table of nftables.
//!
//! Its chains look at interfaces by the beginning of their name, so they hold for networks
//! that are made later too, and are loaded in one transaction.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// What names of the host's ends of tenants' networks begin with.
pub const INTERFACE: &str = "hlt";

/// Addresses that lead to no public network (RFC 6890), groups, and reserved ones.
const NOT_PUBLIC: &str = "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, \
    172.16.0.0/12, 192.0.0.0/24, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/3";
/// The same of IPv6: all that is not global unicast (2000::/3), and of that protocols of the IETF,
/// examples, and 6to4, which leads to any IPv4 address.
const NOT_PUBLIC6: &str =
    "::/3, 4000::/2, 8000::/1, 2001::/23, 2001:db8::/32, 2002::/16, 3fff::/20";

/// The table, for nft(8), in place of the one that there was. `range` and `range6` have the
/// networks of all tenants. Their machines reach what is in `allowed`, and, if `outbound`, public
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
        // Who has an address of the link is asked and answered there.
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
    // The first two commands are for a table that is there, or not, before.
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

/// What a set holds; an empty one has no such line.
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

# Evaluates a log: requests and bytes by code, requests by first part of the path
# and by hour, failures by place, clients by network.
{
    codes[$9]++
    bytes[$9] += $10
    split($7, part, "/")
    sections[part[2]]++
    hours[substr($4, 14, 2)]++
    if ($9 ~ /^[45]/) failures[part[2] "/" part[3]]++
    networks[substr($1, 1, index($1, "."))]++
    total += length($0)
}
END {
    for (code in codes) printf "code %s %d %.2f\n", code, codes[code], bytes[code] / codes[code]
    for (hour in hours) printf "hour %s %d\n", hour, hours[hour]
    for (name in sections) printf "section %-10s %8d %6.3f%%\n", name, sections[name], 100 * sections[name] / NR
    for (name in failures) printf "failures %s %d\n", name, failures[name]
    for (network in networks) { seen++; squares += networks[network] * networks[network] }
    printf "networks %d, skew %.6f, characters %d\n", seen, squares / NR, total
}

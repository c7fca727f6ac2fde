# Evaluates a log: requests and bytes by code, by first part of the path and by
# hour, clients by network, and a histogram of sizes.
{
    split($4, clock, ":")
    hours[clock[2]]++
    codes[$9]++
    bytes[$9] += $10
    split($7, part, "/")
    sections[part[2]]++
    if ($9 ~ /^[45]/) failures[part[2] "/" part[3]]++
    network = $1
    sub(/\.[0-9]+\.[0-9]+$/, "", network)
    networks[network]++
    agent = toupper(substr($12, 2, length($12) - 2))
    gsub(/[^A-Z0-9]/, "_", agent)
    agents[agent]++
    for (size = 1; size <= $10; size *= 2) continue
    sizes[size]++
    total += length($0)
}
END {
    for (code in codes) printf "code %s %d %.2f\n", code, codes[code], bytes[code] / codes[code]
    for (hour in hours) printf "hour %s %d\n", hour, hours[hour]
    for (name in sections) printf "section %-10s %8d %6.3f%%\n", name, sections[name], 100 * sections[name] / NR
    for (name in failures) printf "failures %s %d\n", name, failures[name]
    for (name in agents) printf "agent %s %d\n", name, agents[name]
    for (size in sizes) printf "size below %d: %d\n", size, sizes[size]
    for (network in networks) { seen++; squares += networks[network] * networks[network] }
    printf "networks %d, skew %.6f, characters %d\n", seen, squares / NR, total
}

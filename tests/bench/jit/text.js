// Words, regular expressions, JSON, maps and sorting.
let state = 7;
function random(limit) {
    state = (state * 48271) % 2147483647;
    return state % limit;
}

const syllables = ["ka", "lo", "mi", "ter", "an", "so", "vel", "dur"];
function word() {
    let text = "";
    for (let i = random(3) + 1; i >= 0; i--) text += syllables[random(syllables.length)];
    return text;
}

const counts = new Map();
let matches = 0, bytes = 0;
for (let line = 0; line < 200000; line++) {
    const words = [];
    for (let i = 0; i < 8; i++) words.push(word());
    const text = words.join(" ");
    for (const found of text.split(" ")) counts.set(found, (counts.get(found) || 0) + 1);
    if (/\b(?:ka|so)\w*(?:an|ter)\b.*mi/.test(text)) matches++;
    const record = JSON.parse(JSON.stringify({ line, text, words: words.slice(0, 3) }));
    bytes += record.text.replace(/[aeiou]+/g, (vowels) => vowels.toUpperCase() + "-").length;
}
const common = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, 5);
console.log(counts.size, matches, bytes, JSON.stringify(common));

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Strings, collections, virtual calls, and memory that the collector frees. */
final class Words {
    private static final String[] SYLLABLES = {"ka", "lo", "mi", "ter", "an", "so", "vel", "dur"};
    private static long state = 7;

    private static int random(int limit) {
        state = state * 48271 % 2147483647;
        return (int) (state % limit);
    }

    private static String word() {
        StringBuilder text = new StringBuilder();
        for (int i = random(3) + 1; i >= 0; i--) text.append(SYLLABLES[random(SYLLABLES.length)]);
        return text.toString();
    }

    public static void main(String[] arguments) {
        Map<String, Integer> counts = new HashMap<>();
        Map<Integer, List<String>> byLength = new TreeMap<>();
        long hash = 0;
        for (int line = 0; line < 400000; line++) {
            StringBuilder text = new StringBuilder();
            for (int i = 0; i < 8; i++) text.append(word()).append(' ');
            for (String word : text.toString().split(" ")) {
                counts.merge(word, 1, Integer::sum);
                byLength.computeIfAbsent(word.length(), key -> new ArrayList<>());
                if (line % 64 == 0) byLength.get(word.length()).add(word.toUpperCase());
            }
            hash = hash * 31 + text.indexOf("mi") + text.reverse().toString().hashCode();
        }
        List<Map.Entry<String, Integer>> common = new ArrayList<>(counts.entrySet());
        common.sort(Map.Entry.<String, Integer>comparingByValue(Comparator.reverseOrder())
            .thenComparing(Map.Entry.comparingByKey()));
        byLength.values().forEach(words -> words.sort(Comparator.naturalOrder()));
        System.out.println(counts.size() + " " + hash + " " + common.subList(0, 5));
        byLength.forEach((length, words) -> System.out.print(length + ":" + words.size() + " "));
        System.out.println();
    }
}

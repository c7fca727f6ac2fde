/** Integers and arrays: primes, a checksum, and a table of edit distances. */
final class Sieve {
    private static int primes(int limit) {
        boolean[] composite = new boolean[limit + 1];
        int count = 0;
        for (int i = 2; i <= limit; i++) {
            if (composite[i]) continue;
            count++;
            for (long j = (long) i * i; j <= limit; j += i) composite[(int) j] = true;
        }
        return count;
    }

    private static int checksum(byte[] bytes) {
        int sum = -1;
        for (byte value : bytes) {
            sum ^= value & 0xff;
            for (int bit = 0; bit < 8; bit++) sum = sum >>> 1 ^ (sum & 1) * 0xedb88320;
        }
        return ~sum;
    }

    private static int distance(byte[] a, byte[] b) {
        int[] row = new int[b.length + 1];
        for (int j = 0; j <= b.length; j++) row[j] = j;
        for (int i = 1; i <= a.length; i++) {
            int diagonal = row[0];
            row[0] = i;
            for (int j = 1; j <= b.length; j++) {
                int change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
                diagonal = row[j];
                row[j] = Math.min(Math.min(row[j], row[j - 1]) + 1, change);
            }
        }
        return row[b.length];
    }

    public static void main(String[] arguments) {
        byte[] bytes = new byte[1 << 20], other = new byte[6000];
        long state = 1;
        for (int i = 0; i < bytes.length; i++) {
            state = state * 48271 % 2147483647;
            bytes[i] = (byte) (state % 20);
        }
        System.arraycopy(bytes, 3000, other, 0, other.length);
        int sum = 0;
        for (int i = 0; i < 24; i++) sum += checksum(bytes);
        byte[] begin = java.util.Arrays.copyOf(bytes, 6000);
        System.out.println(primes(20000000) + " " + sum + " " + distance(begin, other));
    }
}

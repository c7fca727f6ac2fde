// ECDSA signature verification on the curve secp256k1, with the library that the
// crate secp256k1-sys carries.
//
//   secp256k1 VERIFICATIONS
#include <secp256k1.h>
#include <secp256k1_preallocated.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The crate puts its version into every symbol: PREFIX is "rustsecp256k1_vX_Y_".
#define JOIN_(prefix, name) prefix##name
#define JOIN(prefix, name) JOIN_(prefix, name)
#define SECP(name) JOIN(PREFIX, name)

enum { SIGNATURES = 64 };

static SECP(pubkey) keys[SIGNATURES];
static SECP(ecdsa_signature) signatures[SIGNATURES];
static unsigned char messages[SIGNATURES][32];

// Sign a message per key; every eighth message is changed afterwards.
static unsigned make_signatures(const SECP(context) * context) {
    unsigned sum = 0;
    for (int i = 0; i < SIGNATURES; i++) {
        unsigned char secret[32], compact[64];
        for (int byte = 0; byte < 32; byte++) {
            secret[byte] = 7 * byte + i + 1;
            messages[i][byte] = 13 * byte ^ i;
        }
        if (!SECP(ec_pubkey_create)(context, &keys[i], secret) ||
            !SECP(ecdsa_sign)(context, &signatures[i], messages[i], secret, NULL, NULL))
            exit(1);
        SECP(ecdsa_signature_serialize_compact)(context, compact, &signatures[i]);
        for (int byte = 0; byte < 64; byte++)
            sum = sum * 31 + compact[byte];
        if (i % 8 == 7)
            messages[i][i % 32] ^= 1;
    }
    return sum;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1000;
    // The crate's copy of the library never allocates.
    void *memory = malloc(SECP(context_preallocated_size)(SECP256K1_CONTEXT_NONE));
    if (!memory)
        return 1;
    SECP(context) *context = SECP(context_preallocated_create)(memory, SECP256K1_CONTEXT_NONE);
    printf("signatures %08x\n", make_signatures(context));
    int good = 0;
    for (int i = 0; i < count; i++) {
        int n = i % SIGNATURES;
        good += SECP(ecdsa_verify)(context, &signatures[n], messages[n], &keys[n]);
    }
    printf("good %d of %d\n", good, count);
    SECP(context_preallocated_destroy)(context);
    free(memory);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/host/test_sha256.c - uses: proto */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "proto/host/sha256.h"

static const char *hex(const unsigned char *bytes)
{
    static char text[2 * SHA256_BYTES + 1];

    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return text;
}

/* Examples of FIPS 180-2, and lengths around a block. The single hash over these was made by another implementation. */
static void hashes(void **state)
{
    static unsigned char million[1000000];
    unsigned char hash[SHA256_BYTES], all[200 * SHA256_BYTES];

    (void)state;
    sha256("", 0, hash);
    assert_string_equal(hex(hash), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha256("abc", 3, hash);
    assert_string_equal(hex(hash), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, hash);
    assert_string_equal(hex(hash), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    memset(million, 'a', sizeof million);
    sha256(million, sizeof million, hash);
    assert_string_equal(hex(hash), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    for (size_t i = 0; i < 200; i++)
        sha256(million, i, all + i * SHA256_BYTES);
    sha256(all, sizeof all, hash);
    assert_string_equal(hex(hash), "752c007f38611cfbf5fa42cb1cea3d8e086491c844d0cc4defd632cb81423506");
}

/* The expected seals come from another implementation of HMAC. */
static void seals(void **state)
{
    unsigned char key[SHA256_BYTES], seal[SHA256_BYTES];

    (void)state;
    for (int i = 0; i < SHA256_BYTES; i++)
        key[i] = (unsigned char)i;
    sha256_seal(key, "what is sealed", 14, seal);
    assert_string_equal(hex(seal), "3a09154e7f18fbd2a470d6e58a6df8370e938bba0d07dec9f2b127afc17b8d77");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(hashes), cmocka_unit_test(seals) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

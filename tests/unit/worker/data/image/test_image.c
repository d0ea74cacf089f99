/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/image/test_image.c
 * uses: proto worker/core worker/mask worker/data
 * Every file of the collection of odd images, compared with its manifest, and pictures written and read back. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/stand/harness.h"
#include "tests/stand/jpeg.h"
#include "worker/data/image/image.h"
#include "worker/data/text/whole_file.h"

#define ODD "../shared/data/odd_images"

/* Intended differences from the manifest. Only an EXIF block or a colour profile is damaged there, and we do not read
 * these; the pictures are whole. */
static const char *const metadata_only[] = { "broken/truncated_exif_dpi.jpg", "broken/unknown_compression_method.png", NULL };
/* The reference decoder reads it with a warning for each of its restart intervals, which hold foreign bytes. */
static const char *const refused[] = { "jpeg/hopper_bad_exif.jpg", NULL };

static bool is_one_of(const char *file, const char *const *list)
{
    while (*list && strcmp(*list, file) != 0)
        list++;
    return *list != NULL;
}

static bool mean_matches(const struct image *img, json_t *mean, double tolerance)
{
    double sum[3] = { 0 };
    size_t n = (size_t)img->w * (size_t)img->h;

    for (size_t i = 0; i < n * 3; i++)
        sum[i % 3] += img->rgb[i];
    for (size_t c = 0; c < 3; c++)
        if (fabs(sum[c] / (double)n - json_number_value(json_array_get(mean, c))) > tolerance)
            return false;
    return true;
}

static void check_entry(struct decoder *dec, json_t *e)
{
    const char *file = json_string_value(json_object_get(e, "file")), *expected = json_string_value(json_object_get(e, "expected"));
    json_t *size = json_object_get(e, "size"), *mean = json_object_get(e, "mean_rgb");
    char path[512];
    struct image img;
    struct err err = { 0 };
    int rc, w = 0, h = 0;

    snprintf(path, sizeof path, ODD "/%s", file);
    rc = image_read(dec, path, &img, &err);
    if (rc < 0) {
        if (strcmp(expected, "ok") == 0 && !is_one_of(file, refused))
            fail_msg("%s: %s", file, err.msg);
        assert_non_null(strstr(err.msg, path));
        return;
    }
    if (strcmp(expected, "error") == 0 && !is_one_of(file, metadata_only))
        fail_msg("%s: was read", file);
    assert_int_equal(image_size(dec, path, false, &w, &h, &err), 0);
    assert_true(w == img.w && h == img.h);
    if (size && (img.w != json_integer_value(json_array_get(size, 0)) || img.h != json_integer_value(json_array_get(size, 1))))
        fail_msg("%s: %d x %d", file, img.w, img.h);
    image_read(dec, path, &img, &err);
    if (mean && !mean_matches(&img, mean, 1.0))
        fail_msg("%s: mean colour is off", file);
}

static void odd_images_are_read_or_told(void **state)
{
    struct decoder *dec = decoder_new();
    json_t *all = json_load_file(ODD "/manifest.json", 0, NULL), *e;
    size_t i;

    (void)state;
    if (!all) {
        decoder_free(dec);
        SKIP("no " ODD);
    }
    json_array_foreach (all, i, e) {
        check_entry(dec, e);
    }
    json_decref(all);
    decoder_free(dec);
}

static uint8_t *pattern(int w, int h)
{
    uint8_t *rgb = malloc((size_t)w * (size_t)h * 3);

    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            uint8_t *p = rgb + ((size_t)y * (size_t)w + (size_t)x) * 3;

            p[0] = (uint8_t)(x * 5);
            p[1] = (uint8_t)(y * 7);
            p[2] = (uint8_t)(x + y);
        }
    return rgb;
}

static void written_pictures_come_back(void **state)
{
    char dir[TEMP_MAX], path[TEMP_MAX + 16];
    uint8_t *rgb = pattern(33, 17);
    struct decoder *dec = decoder_new();
    struct image img;
    struct err err = { 0 };

    (void)state;
    assert_non_null(mkdtemp(temp_path(dir, sizeof dir, "detd-image-XXXXXX")));
    snprintf(path, sizeof path, "%s/a", dir);
    assert_int_equal(image_write_png(path, rgb, 33, 17, &err), 0);
    assert_int_equal(image_read(dec, path, &img, &err), 0);
    assert_true(img.w == 33 && img.h == 17);
    assert_memory_equal(img.rgb, rgb, 33 * 17 * 3);
    assert_true(image_is_own_png(path));
    write_jpeg(path, rgb, 33, 17, 95);
    assert_false(image_is_own_png(path));
    assert_int_equal(image_write_png(path, rgb, 33, 17, &err), ERR_INPUT);
    assert_int_equal(image_read(dec, path, &img, &err), 0);
    for (int i = 0; i < 33 * 17 * 3; i++)
        assert_true(abs(img.rgb[i] - rgb[i]) < 24);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
    assert_false(image_is_own_png(path));
    assert_true(image_write_png(path, rgb, 33, 17, &err) < 0);
    assert_non_null(strstr(err.msg, path));
    assert_true(image_read(dec, path, &img, &err) < 0);
    assert_true(image_read(dec, "/tmp", &img, &err) < 0);
    decoder_free(dec);
    free(rgb);
}

/* Reads with libpng, and compares the pixels and the text of a key. */
static void read_png16(const char *path, int w, int h, const uint16_t *want, const char *key, const char *text)
{
    FILE *f = fopen(path, "rb");
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_textp texts;
    int n, found = 0;

    assert_non_null(f);
    png_init_io(png, f);
    png_read_png(png, info, PNG_TRANSFORM_SWAP_ENDIAN, NULL);
    assert_int_equal(png_get_bit_depth(png, info), 16);
    assert_int_equal(png_get_color_type(png, info), PNG_COLOR_TYPE_GRAY);
    assert_true(png_get_image_width(png, info) == (png_uint_32)w && png_get_image_height(png, info) == (png_uint_32)h);
    for (int y = 0; y < h; y++)
        assert_memory_equal(png_get_rows(png, info)[y], want + y * w, 2 * (size_t)w);
    png_get_text(png, info, &texts, &n);
    for (int i = 0; i < n; i++)
        found += strcmp(texts[i].key, key) == 0 && strcmp(texts[i].text, text) == 0;
    assert_int_equal(found, 1);
    png_destroy_read_struct(&png, &info, NULL);
    fclose(f);
}

static void pictures_of_16_bits(void **state)
{
    enum { WIDE = 301, HIGH = 77 };
    static uint16_t grey[WIDE * HIGH];
    const struct image_text texts[] = { { "Depth unit", "m" }, { "Depth scale", "512" } };
    char dir[TEMP_MAX], path[TEMP_MAX + 16];
    struct err err = { 0 };

    (void)state;
    for (uint32_t i = 0; i < WIDE * HIGH; i++)
        grey[i] = (uint16_t)(i * 2654435761u >> 13);
    assert_non_null(mkdtemp(temp_path(dir, sizeof dir, "detd-image-XXXXXX")));
    snprintf(path, sizeof path, "%s/a", dir);
    assert_int_equal(image_write_png16(path, grey, WIDE, HIGH, texts, 2, &err), 0);
    read_png16(path, WIDE, HIGH, grey, "Depth scale", "512");
    read_png16(path, WIDE, HIGH, grey, "Depth unit", "m");
    assert_true(image_is_own_png(path));
    assert_int_equal(image_write_png16(path, grey, 1, 1, NULL, 0, &err), 0);
    read_png16(path, 1, 1, grey, "Software", "detd");
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
    assert_true(image_write_png16(path, grey, 1, 1, NULL, 0, &err) < 0);
    assert_non_null(strstr(err.msg, path));
}

static void write_picture(const char *path, const uint8_t *rgb, bool png)
{
    struct err err;

    unlink(path); /* another file would stay */
    if (png)
        assert_int_equal(image_write_png(path, rgb, 24, 16, &err), 0);
    else
        write_jpeg(path, rgb, 24, 16, 80);
}

/* Every prefix, and every file with one byte changed, gives a result or an error, and never a crash. */
static void damage_is_survived(void **state)
{
    char path[TEMP_MAX];
    uint8_t *rgb = pattern(24, 16), *copy;
    struct decoder *dec = decoder_new(), *dec2 = decoder_new();
    struct image whole, img;
    struct err err = { 0 };

    (void)state;
    close(mkstemp(temp_path(path, sizeof path, "detd-image-XXXXXX")));
    for (int png = 0; png < 2; png++) {
        write_picture(path, rgb, png);
        assert_int_equal(image_read(dec, path, &whole, &err), 0);
        copy = malloc(whole.size_bytes);
        for (size_t n = 0; n < whole.size_bytes; n++) {
            memcpy(copy, whole.bytes, n);
            image_decode(dec2, "prefix", copy, n, &img, &err);
            memcpy(copy, whole.bytes, whole.size_bytes);
            copy[n] ^= (uint8_t)(1u << (n % 8));
            image_decode(dec2, "flipped", copy, whole.size_bytes, &img, &err);
        }
        free(copy);
    }
    unlink(path);
    decoder_free(dec);
    decoder_free(dec2);
    free(rgb);
}

/* The library accepts these as whole files that hold tables only. */
static void a_jpeg_without_a_picture_is_refused(void **state)
{
    static const uint8_t begun[] = { 0xff, 0xd8 }, ended[] = { 0xff, 0xd8, 0xff, 0xd9 };
    struct decoder *dec = decoder_new();
    struct image img;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(image_decode(dec, "begun.jpg", begun, sizeof begun, &img, &err), ERR_DATA);
    assert_string_equal(err.msg, "begun.jpg: damaged JPEG: it ends before its picture");
    assert_int_equal(image_decode(dec, "ended.jpg", ended, sizeof ended, &img, &err), ERR_DATA);
    assert_string_equal(err.msg, "ended.jpg: damaged JPEG: it ends before its picture");
    decoder_free(dec);
}

static void big_endian(uint8_t *to, uint32_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(v >> (8 * (bytes - 1 - i)));
}

static uint32_t crc_of(const uint8_t *from, const uint8_t *to)
{
    uint32_t crc = ~0u;

    for (; from < to; from++) {
        crc ^= *from;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* The size in a picture's header. */
static void claim(uint8_t *file, size_t size, bool png, uint32_t w, uint32_t h)
{
    size_t at = 2;

    if (png) {
        big_endian(file + 16, w, 4);
        big_endian(file + 20, h, 4);
        big_endian(file + 29, crc_of(file + 12, file + 29), 4);
        return;
    }
    while (at < size && file[at + 1] != 0xc0) /* SOF0 */
        at += 2 + (size_t)(file[at + 2] << 8 | file[at + 3]);
    assert_true(at < size);
    big_endian(file + at + 5, h, 2);
    big_endian(file + at + 7, w, 2);
}

static void other_kinds_are_named(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *why;
    } kinds[] = {
        { "II*\0more", 8, "x: a TIFF file, which is not read; convert it to PNG or JPEG" },
        { "GIF89a", 6, "x: a GIF file, which is not read; convert it to PNG or JPEG" },
        { "\0\0\0\x18"
          "ftypheic",
          12, "x: a HEIC file, which is not read; convert it to PNG or JPEG" },
        { "\0\0\0\x18"
          "ftypavif",
          12, "x: an AVIF file, which is not read; convert it to PNG or JPEG" },
        { "version https://git-lfs.github.com/spec/v1\n", 43, "x: a pointer of Git LFS, not the picture; 'git lfs pull' fetches it" },
        { "GIF", 3, "x: neither a JPEG, PNG, WebP nor BMP file" },
    };
    struct decoder *dec = decoder_new();
    struct image img;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        assert_int_equal(image_decode(dec, "x", (const uint8_t *)kinds[i].bytes, kinds[i].n, &img, &err), ERR_DATA);
        assert_string_equal(err.msg, kinds[i].why);
    }
    decoder_free(dec);
}

static void headers_over_a_limit_are_refused(void **state)
{
    static const struct {
        uint32_t w, h;
        bool over;
    } rows[] = { { 16384, 16384, true }, { 16384, 4096, false }, { 16384, 4097, true }, { 4097, 16384, true },
                 { 16385, 1, true },     { 1, 16385, true },     { 16384, 1, false },   { 1, 16384, false } };
    char path[TEMP_MAX];
    uint8_t *rgb = pattern(24, 16);
    struct decoder *dec = decoder_new();
    struct image img;
    struct err err;
    int w, h;

    (void)state;
    close(mkstemp(temp_path(path, sizeof path, "detd-image-XXXXXX")));
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        bool png = i % 2, over = rows[i / 2].over;
        FILE *f;

        write_picture(path, rgb, png);
        assert_int_equal(image_read(dec, path, &img, &err), 0);
        claim((uint8_t *)img.bytes, img.size_bytes, png, rows[i / 2].w, rows[i / 2].h);
        f = fopen(path, "w");
        assert_int_equal(fwrite(img.bytes, 1, img.size_bytes, f), img.size_bytes);
        fclose(f);
        assert_int_equal(image_size(dec, path, false, &w, &h, &err), over ? ERR_DATA : 0);
        if (!over)
            assert_true(w == (int)rows[i / 2].w && h == (int)rows[i / 2].h);
        else if (!png) /* libpng knows the longest side, and says it in its own words */
            assert_non_null(strstr(err.msg, "over the limit of 16384 a side and 67108864 in all"));
    }
    unlink(path);
    decoder_free(dec);
    free(rgb);
}

static void a_file_is_read_whole_or_told(void **state)
{
    static const int at_fault[] = { ERR_DATA, ERR_UNSUPPORTED, -ENOENT, -ENOTDIR, -EACCES, -ELOOP, -ENAMETOOLONG, -ENXIO };
    static const int not_at_fault[] = { 0, -ENOMEM, -EMFILE, -EIO, -EINTR, -ESTALE, ERR_DEVICE, ERR_INPUT };
    char path[TEMP_MAX];
    struct whole_file f = { 0 };
    struct err err;
    int fd = mkstemp(temp_path(path, sizeof path, "detd-image-XXXXXX"));

    (void)state;
    assert_int_equal(write(fd, "0123456789", 10), 10);
    close(fd);
    assert_int_equal(whole_file_read(&f, path, 9, &err), ERR_DATA);
    assert_non_null(strstr(err.msg, "file of 10 bytes is over the limit of 9"));
    assert_int_equal(whole_file_read(&f, path, 10, &err), 0);
    assert_int_equal(f.size, 10);
    assert_memory_equal(f.bytes, "0123456789", 10);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(whole_file_read(&f, path, 10, &err), 0);
    assert_int_equal(f.size, 0);
    free(f.bytes);
    unlink(path);
    for (size_t i = 0; i < sizeof at_fault / sizeof *at_fault; i++)
        assert_true(file_at_fault(at_fault[i]) && !file_at_fault(not_at_fault[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_images_are_read_or_told),
        cmocka_unit_test(written_pictures_come_back),
        cmocka_unit_test(pictures_of_16_bits),
        cmocka_unit_test(damage_is_survived),
        cmocka_unit_test(a_jpeg_without_a_picture_is_refused),
        cmocka_unit_test(other_kinds_are_named),
        cmocka_unit_test(headers_over_a_limit_are_refused),
        cmocka_unit_test(a_file_is_read_whole_or_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

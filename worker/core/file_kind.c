#include "worker/core/file_kind.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

enum { LOOKED_AT = 512, TAR_MARK = 257 };

static const struct {
    const char *begin;
    size_t at, len;
    const char *what;
} kinds[] = {
#define BEGIN(text) text, 0, sizeof(text) - 1
    { BEGIN("version https://git-lfs"), "a Git LFS pointer: 'git lfs pull' in its repository fetches the file itself" },
    { BEGIN("PK\3\4"), "an archive, as PyTorch's .pth and .pt files are: save its state dict as .safetensors" },
    { BEGIN("\x89HDF\r\n"), "an HDF5 file, as Keras writes" },
    { BEGIN("\x1f\x8b"), "compressed with gzip: unpack it first" },
    { BEGIN("BZh"), "compressed with bzip2: unpack it first" },
    { BEGIN("\xfd\x37zXZ"), "compressed with xz: unpack it first" },
    { BEGIN("\x28\xb5\x2f\xfd"), "compressed with zstd: unpack it first" },
    { BEGIN("GGUF"), "a GGUF file" },
    { BEGIN("\x89PNG"), "a picture" },
    { BEGIN("\xff\xd8\xff"), "a picture" },
    { BEGIN("\x7f"
            "ELF"),
      "a program" },
    { BEGIN("%PDF"), "a PDF document" },
    { "ustar", TAR_MARK, 5, "a tar archive: unpack it first" },
#undef BEGIN
};

static bool is_pickle(const unsigned char *p, size_t size)
{
    return size >= 2 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5;
}

/* Version 0.1 or 0.2. */
static bool is_darknet(const unsigned char *p, size_t size)
{
    return size >= 8 && (memcmp(p, "\0\0\0\0\1\0\0\0", 8) == 0 || memcmp(p, "\0\0\0\0\2\0\0\0", 8) == 0);
}

/* Eight bytes of length, then a JSON object. */
static bool is_safetensors(const unsigned char *p, size_t size)
{
    uint64_t len;

    if (size < 10)
        return false;
    memcpy(&len, p, 8);
    return len >= 2 && len <= size - 8 && p[8] == '{';
}

/* True if there are no control characters but white space. Bytes above 0x7f are allowed: UTF-8 has them. */
static bool is_text(const unsigned char *p, size_t size)
{
    for (size_t i = 0; i < size && i < LOOKED_AT; i++)
        if ((p[i] < ' ' && (p[i] == '\0' || !strchr("\t\n\r\f", p[i]))) || p[i] == 0x7f || p[i] >= 0xf8)
            return false;
    return true;
}

static const char *text_kind(const char *p, size_t size)
{
    static const char mark[] = "\xef\xbb\xbf"; /* byte order mark */
    size_t at = size >= 3 && memcmp(p, mark, 3) == 0 ? 3 : 0;

    while (at < size && p[at] != '\0' && strchr(" \t\n\r\f", p[at]))
        at++;
    if (at == size)
        return "blank";
    if (size - at >= 14 && (strncasecmp(p + at, "<!doctype html", 14) == 0 || strncasecmp(p + at, "<html", 5) == 0))
        return "a web page (HTML): the download went wrong";
    if (p[at] == '<')
        return "XML text";
    return p[at] == '{' ? "JSON text" : p[at] == '[' ? "text in sections, as a .cfg" : "text";
}

const char *file_kind(const void *bytes, size_t size, enum weights_format wanted)
{
    if (size == 0)
        return "empty";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (size >= kinds[i].at + kinds[i].len && memcmp((const char *)bytes + kinds[i].at, kinds[i].begin, kinds[i].len) == 0)
            return kinds[i].what;
    if (is_pickle(bytes, size))
        return "a pickle, as detectron2's .pkl and PyTorch's older files are: save its state dict as .safetensors";
    if (wanted != WEIGHTS_DARKNET && is_darknet(bytes, size))
        return "weights of Darknet, which fit its own networks alone";
    if (wanted != WEIGHTS_SAFETENSORS && is_safetensors(bytes, size))
        return "in the format of .safetensors: give it a name that ends so";
    return is_text(bytes, size) ? text_kind(bytes, size) : NULL;
}

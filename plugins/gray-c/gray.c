/*
 * Makes colour pictures grey on their way: 24-bit PPM to 8-bit PGM, piece by piece, whatever the
 * pieces' size. Where in a picture a response is, is in its note: a state in the lower two bits, bytes
 * of pixels to come in the others.
 */
#include "gray.h"
#include "weir_plugin.h"

/* Bytes of a header, comments included, that are waited for. */
#define HEADER_BYTES_MAX 4096
/* The host's pieces, and what one keeps for the next. */
#define PIECE_BYTES_MAX (256 * 1024 + HEADER_BYTES_MAX)

WEIR_PLUGIN(256 * 1024, PIECE_BYTES_MAX + 4096, 16)

enum { AT_HEADER = 0, AT_PIXELS = 1, ELSEWHERE = 2 };

/* One hook's edits, and the pieces of a body that they refer to. */
static uint8_t list[16 * 1024];
static uint8_t output[PIECE_BYTES_MAX];

int32_t weir_wants(uint32_t hook);
int32_t WEIR_EXPORT(weir_wants)(uint32_t hook) {
    return hook == WEIR_RESPONSE ? WEIR_PART_STATUS | WEIR_PART_RESPONSE : WEIR_PART_BODY;
}

static uint8_t lower(uint8_t byte) {
    return byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte;
}

static bool is_space(uint8_t byte) {
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* Whether a content type is that of a PPM, whatever its parameters. */
static bool is_ppm(weir_slice_t kind) {
    static const char expected[] = "image/x-portable-pixmap";
    size_t len = sizeof expected - 1;
    if (kind.len < len) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (lower(kind.at[i]) != (uint8_t)expected[i]) {
            return false;
        }
    }
    return kind.len == len || kind.at[len] == ';' || is_space(kind.at[len]);
}

WEIR_HOOK(weir_on_response)(const weir_frame_t *frame) {
    weir_edits_t edits = weir_edits(list, sizeof list);
    bool is_coded = weir_field(frame->response, WEIR_TEXT("content-encoding")).at != NULL;
    if (frame->status != 200 || is_coded ||
        !is_ppm(weir_field(frame->response, WEIR_TEXT("content-type")))) {
        return 0;
    }
    weir_set(&edits, WEIR_TEXT("content-type"), WEIR_TEXT("image/x-portable-graymap"));
    weir_want(&edits, WEIR_WANT_PIECES);
    /* These describe the content as it was. */
    weir_remove(&edits, WEIR_TEXT("accept-ranges"));
    weir_remove(&edits, WEIR_TEXT("content-digest"));
    weir_remove(&edits, WEIR_TEXT("content-md5"));
    weir_remove(&edits, WEIR_TEXT("digest"));
    weir_remove(&edits, WEIR_TEXT("etag"));
    weir_remove(&edits, WEIR_TEXT("repr-digest"));
    return weir_done(&edits);
}

enum verdict { COMPLETE, INCOMPLETE, OTHER };

/* Reads a number, and what may stand before it; at the end `*at` is behind its last digit. */
static enum verdict number(const uint8_t *bytes, size_t len, size_t *at, uint32_t *value) {
    size_t began = *at;
    bool in_comment = false;
    for (; *at < len; ++*at) {
        uint8_t byte = bytes[*at];
        if (byte == '\n' || byte == '\r') {
            in_comment = false;
        } else if (!in_comment && byte == '#') {
            in_comment = true;
        } else if (!in_comment && !is_space(byte)) {
            break;
        }
    }
    if (*at == len) {
        return INCOMPLETE;
    }
    if (*at == began || bytes[*at] < '0' || bytes[*at] > '9') {
        return OTHER;
    }
    uint64_t read = 0;
    for (; *at < len && bytes[*at] >= '0' && bytes[*at] <= '9'; ++*at) {
        read = 10 * read + (bytes[*at] - '0');
        if (read > UINT32_MAX) {
            return OTHER;
        }
    }
    *value = (uint32_t)read;
    if (*at == len) {
        return INCOMPLETE;
    }
    return is_space(bytes[*at]) ? COMPLETE : OTHER;
}

typedef struct {
    size_t len;
    uint32_t width, height;
} header_t;

/* Reads a picture's header. */
static enum verdict read_header(const uint8_t *bytes, size_t len, header_t *header) {
    enum verdict more = len < HEADER_BYTES_MAX ? INCOMPLETE : OTHER;
    len = len < HEADER_BYTES_MAX ? len : HEADER_BYTES_MAX;
    if ((len > 0 && bytes[0] != 'P') || (len > 1 && bytes[1] != '6')) {
        return OTHER;
    }
    uint32_t numbers[3];
    size_t at = len < 2 ? len : 2;
    for (size_t i = 0; i < 3; i++) {
        enum verdict verdict = number(bytes, len, &at, &numbers[i]);
        if (verdict != COMPLETE) {
            return verdict == INCOMPLETE ? more : OTHER;
        }
    }
    /* One white space, and then the pixels. */
    *header = (header_t){at + 1, numbers[0], numbers[1]};
    return numbers[0] > 0 && numbers[1] > 0 && numbers[2] == 255 ? COMPLETE : OTHER;
}

static size_t put_text(uint8_t *to, const char *text) {
    size_t len = 0;
    for (; text[len] != 0; len++) {
        to[len] = (uint8_t)text[len];
    }
    return len;
}

static size_t put_number(uint8_t *to, uint32_t value) {
    uint8_t digits[10];
    size_t len = 0;
    do {
        digits[len++] = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    for (size_t i = 0; i < len; i++) {
        to[i] = digits[len - 1 - i];
    }
    return len;
}

static size_t put_header(uint8_t *to, const header_t *header) {
    size_t at = put_text(to, "P5\n");
    at += put_number(to + at, header->width);
    at += put_text(to + at, " ");
    at += put_number(to + at, header->height);
    return at + put_text(to + at, "\n255\n");
}

/* Output is never longer than input: a header that is written is no longer than any that can be read. */
static uint64_t
gray(uint64_t note, const uint8_t *piece, size_t len, bool is_last, weir_edits_t *edits) {
    size_t done = 0, out = 0;
    uint32_t keep = 0;
    uint32_t state = note & 3;
    uint64_t left = note >> 2;
    while (done < len && keep == 0) {
        const uint8_t *rest = piece + done;
        size_t rest_len = len - done;
        if (state == AT_HEADER) {
            header_t header;
            enum verdict verdict = read_header(rest, rest_len, &header);
            if (verdict == COMPLETE) {
                out += put_header(output + out, &header);
                done += header.len;
                left = 3 * (uint64_t)header.width * header.height;
                state = AT_PIXELS;
            } else if (verdict == INCOMPLETE && !is_last) {
                keep = (uint32_t)rest_len;
            } else {
                state = ELSEWHERE;
            }
        } else if (state == AT_PIXELS) {
            size_t here = rest_len < left ? rest_len : (size_t)left;
            size_t pixels = here / 3;
            gray_transcode(rest, output + out, pixels);
            out += pixels;
            done += 3 * pixels;
            left -= 3 * (uint64_t)pixels;
            if (left == 0) {
                state = AT_HEADER;
            } else if (here % 3 > 0) {
                /* A pixel that ends nowhere is none. */
                keep = (uint32_t)(here % 3);
                break;
            }
        } else {
            break;
        }
    }
    if (done == 0 && keep == 0 && state == ELSEWHERE) {
        return ELSEWHERE;
    }
    weir_body(edits, output, out);
    if (state == ELSEWHERE && done < len) {
        weir_piece(edits, (uint32_t)done, (uint32_t)(len - done));
    }
    if (keep > 0 && !is_last) {
        weir_keep(edits, keep);
    }
    return state == AT_PIXELS ? left << 2 | AT_PIXELS : state;
}

WEIR_HOOK(weir_on_response_body)(const weir_frame_t *frame) {
    if (frame->body.len > PIECE_BYTES_MAX) {
        return -1;
    }
    weir_edits_t edits = weir_edits(list, sizeof list);
    bool is_last = (frame->flags & WEIR_FLAG_END) != 0;
    uint64_t note = gray(frame->note, frame->body.at, frame->body.len, is_last, &edits);
    if (note != frame->note) {
        weir_note(&edits, note);
    }
    return weir_done(&edits);
}

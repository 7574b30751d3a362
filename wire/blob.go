package wire

import (
	"strconv"
	"strings"

	"github.com/toolbus/toolbus/tool"
)

// A BlobRef is a claim check: it stands in the Tb-Blob header of a message whose payload is kept elsewhere, in pieces
// (Subjects.Blob), because it is too large for one message. Its text is v1;<id>;<size>;<chunks>;<sha256>.
type BlobRef struct {
	ID     string // legal as tool.CheckID says
	Size   int64  // bytes in all, at most MaxBlob
	Digest string // SHA-256 of all the bytes, 64 lower-case hex digits
	Chunks int    // 1 to MaxChunks
}

// String is the text of Tb-Blob.
func (r BlobRef) String() string {
	return "v1;" + r.ID + ";" + strconv.FormatInt(r.Size, 10) + ";" + strconv.Itoa(r.Chunks) + ";" + r.Digest
}

// ParseBlobRef is the way back from String. It takes nothing else, so what it gives may be used to size a buffer and
// make subjects. The error is an *Error.
func ParseBlobRef(s string) (BlobRef, error) {
	if len(s) > 512 {
		return BlobRef{}, refuse(CodeBlobRef, "claim check is %d bytes long, at most 512 are allowed", len(s))
	}
	part := strings.Split(s, ";")
	if len(part) != 5 {
		return BlobRef{}, refuse(CodeBlobRef, "claim check %s: expected v1;<id>;<size>;<chunks>;<sha256>", quote(s))
	}
	if part[0] != "v1" {
		return BlobRef{}, refuse(CodeBlobRef, "claim check: version %s: expected v1", quote(part[0]))
	}
	if err := tool.CheckID(part[1]); err != nil {
		return BlobRef{}, refuse(CodeBlobRef, "claim check: %v", err)
	}
	size, ok := decimal(part[2], MaxBlob)
	if !ok {
		return BlobRef{}, refuse(CodeBlobRef, "claim check: size %s: expected 0 to %d", quote(part[2]), MaxBlob)
	}
	chunks, ok := decimal(part[3], MaxChunks)
	if !ok || chunks == 0 {
		return BlobRef{}, refuse(CodeBlobRef, "claim check: chunks %s: expected 1 to %d", quote(part[3]), MaxChunks)
	}
	if !isDigest(part[4]) {
		return BlobRef{}, refuse(CodeBlobRef, "claim check: digest %s: expected 64 lower-case hex digits", quote(part[4]))
	}
	return BlobRef{ID: part[1], Size: size, Chunks: int(chunks), Digest: part[4]}, nil
}

func isDigest(s string) bool {
	if len(s) != 64 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
			return false
		}
	}
	return true
}

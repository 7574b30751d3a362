package wire

import (
	"errors"
	"strings"
	"testing"
)

func TestCallRef(t *testing.T) {
	type good struct {
		Text    string `json:"text"`
		Turn    string `json:"turn"`
		Call    string `json:"call"`
		Attempt int    `json:"attempt"`
		Key     string `json:"key"`
	}
	var v struct {
		Good []good   `json:"good"`
		Bad  []string `json:"bad"`
	}
	for _, ref := range []CallRef{
		{"t1", "a", 1},
		{"01JD2K5Z", "call_9-x", 42},
		{strings.Repeat("t", 128), strings.Repeat("c", 128), 1_000_000},
	} {
		text := ref.String()
		if got := string(ref.AppendTo(nil)); got != text {
			t.Errorf("AppendTo gives %q, String %q", got, text)
		}
		if got, err := ParseCallRef(text); err != nil || got != ref {
			t.Errorf("ParseCallRef(%q) = %v, %v, want %v", text, got, err, ref)
		}
		v.Good = append(v.Good, good{text, ref.Turn, ref.Call, ref.Attempt, ref.Key()})
	}
	v.Bad = []string{
		"", "/", "//", "t1/a", "t1/a/", "t1//1", "/a/1", "t1/a/1/", "t1/a/1/2", "t1/a/0", "t1/a/-1", "t1/a/+1", "t1/a/01", "t1/a/1.0",
		"t1/a/1e3", "t1/a/1000001", "t1/a/99999999999999999999", "t1/a/٣", "t1/a/ 1", " t1/a/1", "t.1/a/1", "t1/*/1", "t1/>/1",
		"t1/a b/1", "t1/ä/1", "t1/a\r\n/1", "t1/\x00/1", strings.Repeat("t", 129) + "/a/1", "t1/" + strings.Repeat("c", 129) + "/1",
	}
	for _, text := range v.Bad {
		_, err := ParseCallRef(text)
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeCallRef {
			t.Errorf("ParseCallRef(%q): %v, want %s", text, err, CodeCallRef)
		}
	}
	golden(t, "callrefs.json", v)
}

func FuzzParseCallRef(f *testing.F) {
	f.Add("t1/a/1")
	f.Add("t1/a/1000001")
	f.Fuzz(func(t *testing.T, text string) {
		if ref, err := ParseCallRef(text); err == nil && ref.String() != text {
			t.Errorf("ParseCallRef(%q) = %q", text, ref)
		}
	})
}

func BenchmarkParseCallRef(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseCallRef("01JD2K5ZQ0M9W8V7/call_4/1"); err != nil {
			b.Fatal(err)
		}
	}
}

const digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func TestBlobRef(t *testing.T) {
	type good struct {
		Text   string `json:"text"`
		ID     string `json:"id"`
		Size   int64  `json:"size"`
		Chunks int    `json:"chunks"`
		Digest string `json:"sha256"`
	}
	var v struct {
		Good []good   `json:"good"`
		Bad  []string `json:"bad"`
	}
	for _, ref := range []BlobRef{
		{"b1", 4, digest, 1},
		{"b1", 0, digest, 1},
		{strings.Repeat("b", 128), MaxBlob, digest, MaxChunks},
	} {
		text := ref.String()
		if got, err := ParseBlobRef(text); err != nil || got != ref {
			t.Errorf("ParseBlobRef(%q) = %v, %v, want %v", text, got, err, ref)
		}
		v.Good = append(v.Good, good{text, ref.ID, ref.Size, ref.Chunks, ref.Digest})
	}
	v.Bad = []string{
		"", "v1", "v1;b1;4;1", "v1;b1;4;1;", "v2;b1;4;1;" + digest, "v1;;4;1;" + digest, "v1;b.1;4;1;" + digest, "v1;*;4;1;" + digest,
		"v1;b1;-1;1;" + digest, "v1;b1;04;1;" + digest, "v1;b1;67108865;1;" + digest, "v1;b1;9223372036854775808;1;" + digest,
		"v1;b1;4;0;" + digest, "v1;b1;4;4097;" + digest, "v1;b1;4;1;" + strings.ToUpper(digest), "v1;b1;4;1;" + digest[1:],
		"v1;b1;4;1;" + digest + ";", " v1;b1;4;1;" + digest, "v1;b1;4;1;" + digest + "\r\n", "v1;" + strings.Repeat("b", 600) + ";4;1;" + digest,
	}
	for _, text := range v.Bad {
		_, err := ParseBlobRef(text)
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeBlobRef {
			t.Errorf("ParseBlobRef(%q): %v, want %s", text, err, CodeBlobRef)
		}
	}
	golden(t, "blobref.json", v)
}

func FuzzBlobRef(f *testing.F) {
	f.Add("v1;b1;4;1;" + digest)
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := ParseBlobRef(text)
		if err != nil {
			return
		}
		if ref.String() != text || ref.Size > MaxBlob || ref.Chunks > MaxChunks {
			t.Errorf("ParseBlobRef(%q) = %+v", text, ref)
		}
	})
}

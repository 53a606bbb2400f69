package badinput

import (
	"bytes"
	"compress/gzip"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

// diskCases are files in the right place that are no disks, or not only disks.
func diskCases(t *testing.T) []badCase {
	t.Helper()
	want := map[string]string{}
	hostile, err := guest.HostileDisks(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(make([]byte, mebibyte)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	cases := []badCase{{name: "gzip", files: []images.File{{Name: "disk", Data: zipped.Bytes()}}}}
	for _, d := range hostile {
		cases = append(cases, badCase{name: d.Name, files: folder(images.File{Name: "disk.img", From: d.Path})})
	}
	for i := range cases {
		cases[i].at, cases[i].code, cases[i].want = atCreate, codes.InvalidArgument, want[cases[i].name]
	}
	return cases
}

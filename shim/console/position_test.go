package console

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestPosition(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pos")
	want := position{offset: 1<<40 + 7, dropped: 12, open: true, log: logEnd{inode: 1<<63 + 5, size: 99}}
	for _, stored := range []position{{}, want} {
		p, damaged, err := openPosition(path)
		if err != nil || damaged != nil || p.saved != stored {
			t.Fatalf("opened %+v, %v, %v; want %+v", p, damaged, err, stored)
		}
		if err := p.save(want); err != nil {
			t.Fatal(err)
		}
		if err := p.file.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamagedPosition(t *testing.T) {
	good := position{offset: 77}.encode()
	flipped := append([]byte(nil), good...)
	flipped[9] ^= 1
	for name, data := range map[string][]byte{
		"short": good[:20], "long": append(slices.Clip(good), 0), "flipped": flipped, "text": []byte("77\n"),
		"negative": position{offset: -1}.encode(), "no size": position{log: logEnd{size: -1}}.encode(),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pos")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			p, damaged, err := openPosition(path)
			if err != nil || damaged == nil || p.saved != (position{}) {
				t.Fatalf("opened %+v, %v, %v", p, damaged, err)
			}
			if err := p.file.Close(); err != nil {
				t.Fatal(err)
			}
			if again, err := decodePosition(read(t, path)); err != nil || again != (position{}) {
				t.Errorf("the file was left with %+v, %v", again, err)
			}
		})
	}
}

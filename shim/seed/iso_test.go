package seed_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
)

// block is ISO 9660's logical sector.
const block = 2048

// iso reads an image by the standards alone (ECMA-119; IEEE P1281 and P1282 for
// Rock Ridge), so that the library which wrote it isn't its own judge. Not every
// kernel that the tests run on can mount ISO 9660.
type iso struct {
	t     *testing.T
	image []byte
}

func readISO(t *testing.T, path string) iso {
	t.Helper()
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	i := iso{t: t, image: image}
	if got := string(i.descriptor()[:6]); got != "\x01CD001" {
		t.Fatalf("no primary volume descriptor: %q", got)
	}
	if size := number(i.descriptor()[80:]) * block; size > len(image) {
		t.Fatalf("the volume has %d bytes, the image %d", size, len(image))
	}
	return i
}

func (i iso) descriptor() []byte { return i.image[16*block : 17*block] }

func (i iso) label() string { return string(bytes.TrimRight(i.descriptor()[40:72], " ")) }

// files returns the files of the root folder by their Rock Ridge names.
func (i iso) files() map[string]string {
	i.t.Helper()
	files := map[string]string{}
	folder := i.extent(i.descriptor()[156:190])
	for at := 0; at < len(folder) && folder[at] != 0; at += int(folder[at]) {
		record := folder[at : at+int(folder[at])]
		if isFolder := record[25]&2 != 0; isFolder {
			continue // itself and its parent
		}
		name := i.name(record)
		if _, twice := files[name]; twice {
			i.t.Errorf("two files %q", name)
		}
		files[name] = string(i.extent(record))
	}
	return files
}

// extent is the content that a directory record describes.
func (i iso) extent(record []byte) []byte {
	from := number(record[2:]) * block
	return i.image[from : from+number(record[10:])]
}

// name is what the NM entries in a record's system use area say.
func (i iso) name(record []byte) string {
	var name []byte
	identifier := int(record[32])
	use := record[33+identifier+1-identifier%2:]
	for len(use) >= 4 && use[2] >= 4 {
		entry := use[:use[2]]
		use = use[len(entry):]
		switch string(entry[:2]) {
		case "NM":
			name = append(name, entry[5:]...)
		case "CE": // goes on elsewhere
			from := number(entry[4:])*block + number(entry[12:])
			use = i.image[from : from+number(entry[20:])]
		}
	}
	return string(name)
}

func number(b []byte) int { return int(binary.LittleEndian.Uint32(b)) }

// Package isofs reads ISO 9660 images by the standards alone (ECMA-119; IEEE P1281 and
// P1282 for Rock Ridge; Microsoft's Joliet specification), so that the library which
// writes them is not its own judge. Not every kernel that the tests run on can mount one.
package isofs

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"os"
	"path"
	"testing"
	"unicode/utf16"
)

// Block is ISO 9660's logical sector in bytes.
const Block = 2048

// Image is what an image holds.
type Image struct {
	Label, JolietLabel string
	// Files and Joliet are the contents of the files by their paths, with Rock Ridge and
	// with Joliet names.
	Files, Joliet map[string]string
	// Modes are the permissions of files and folders by their Rock Ridge paths; "." is the root.
	Modes map[string]fs.FileMode
}

// Read reads an image.
func Read(t testing.TB, name string) Image {
	t.Helper()
	image, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	primary, joliet := tree{t: t, image: image, sector: 16}, tree{t: t, image: image, sector: 17, joliet: true}
	if got := string(primary.descriptor()[:6]); got != "\x01CD001" {
		t.Fatalf("no primary volume descriptor: %q", got)
	}
	if d := joliet.descriptor(); string(d[:6]) != "\x02CD001" || string(d[88:91]) != "%/E" {
		t.Fatalf("no Joliet volume descriptor: %q", d[:91])
	}
	for _, v := range []tree{primary, joliet} {
		if size := number(v.descriptor()[80:]) * Block; size > len(image) {
			t.Fatalf("the volume has %d bytes, the image %d", size, len(image))
		}
	}
	i := Image{
		Label:       string(bytes.TrimRight(primary.descriptor()[40:72], " ")),
		JolietLabel: string(bytes.TrimRight([]byte(ucs2(joliet.descriptor()[40:72])), " ")),
		Files:       map[string]string{}, Joliet: map[string]string{}, Modes: map[string]fs.FileMode{},
	}
	primary.walk(primary.descriptor()[156:190], ".", i.Files, i.Modes)
	joliet.walk(joliet.descriptor()[156:190], ".", i.Joliet, nil)
	return i
}

// tree is one of an image's two trees of folders.
type tree struct {
	t      testing.TB
	image  []byte
	sector int // of its descriptor
	joliet bool
}

func (v tree) descriptor() []byte { return v.image[v.sector*Block : (v.sector+1)*Block] }

// walk adds the files of a folder to files, and modes to modes.
func (v tree) walk(folder []byte, below string, files map[string]string, modes map[string]fs.FileMode) {
	v.t.Helper()
	for content := v.extent(folder); len(content) > 0; content = content[min(Block, len(content)):] {
		records := content[:min(Block, len(content))]
		for len(records) > 0 && records[0] != 0 { // no record crosses a sector
			record := records[:records[0]]
			records = records[records[0]:]
			name, isFolder := path.Join(below, v.name(record)), record[25]&2 != 0
			if modes != nil && (record[33] != 1 || record[32] != 1) { // not the parent
				modes[name] = v.mode(record)
			}
			switch _, twice := files[name]; {
			case record[32] == 1 && record[33] < 2: // the folder itself, or its parent
			case isFolder:
				v.walk(record, name, files, modes)
			case twice:
				v.t.Errorf("two files %q", name)
			default:
				files[name] = string(v.extent(record))
			}
		}
	}
}

// extent is the content that a directory record describes.
func (v tree) extent(record []byte) []byte {
	from := number(record[2:]) * Block
	return v.image[from : from+number(record[10:])]
}

// name is the Joliet name, or what the NM entries in a record's system use area say.
func (v tree) name(record []byte) string {
	if v.joliet {
		if record[32] == 1 {
			return ""
		}
		return ucs2(record[33 : 33+int(record[32])])
	}
	var name []byte
	v.use(record, func(entry []byte) {
		if string(entry[:2]) == "NM" {
			name = append(name, entry[5:]...)
		}
	})
	return string(name)
}

// mode is what the PX entry says.
func (v tree) mode(record []byte) (mode fs.FileMode) {
	v.use(record, func(entry []byte) {
		if string(entry[:2]) == "PX" {
			mode = fs.FileMode(number(entry[4:])).Perm()
		}
	})
	return mode
}

// use calls visit with the entries of a record's system use area.
func (v tree) use(record []byte, visit func(entry []byte)) {
	identifier := int(record[32])
	area := record[33+identifier+1-identifier%2:]
	for len(area) >= 4 && area[2] >= 4 {
		entry := area[:area[2]]
		area = area[len(entry):]
		visit(entry)
		if string(entry[:2]) == "CE" { // goes on elsewhere
			from := number(entry[4:])*Block + number(entry[12:])
			area = v.image[from : from+number(entry[20:])]
		}
	}
}

// ucs2 decodes big-endian UCS-2.
func ucs2(b []byte) string {
	var units []uint16
	for ; len(b) >= 2; b = b[2:] {
		units = append(units, binary.BigEndian.Uint16(b))
	}
	return string(utf16.Decode(units))
}

func number(b []byte) int { return int(binary.LittleEndian.Uint32(b)) }

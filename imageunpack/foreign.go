package imageunpack

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/lima-vm/go-qcow2reader"
	"github.com/lima-vm/go-qcow2reader/image"
	"github.com/lima-vm/go-qcow2reader/image/qcow2"
	"github.com/lima-vm/go-qcow2reader/image/raw"
)

// signature is how a format that can't be attached gives itself away.
type signature struct {
	name   string
	magic  string
	offset int64 // in bytes; below zero it counts from the file's end
	remedy string
}

const (
	convert = "convert it with qemu-img convert -O qcow2, and build the image from the result"
	inflate = "decompress it, and build the image from the result"
	extract = "take the disk out of it, and build the image from that"
)

// signatures are those that go-qcow2reader doesn't know. An ISO 9660 image isn't among them: it
// is a disk that can be booted as it is.
func signatures() []signature {
	return []signature{
		{"qcow (version 1)", "QFI\xfb\x00\x00\x00\x01", 0, convert},
		{"QED", "QED\x00", 0, convert},
		{"fixed VHD (vpc)", "conectix", -512, convert},
		{"DMG", "koly\x00\x00\x00\x04", -512, convert},
		{"gzip", "\x1f\x8b\x08", 0, inflate},
		{"xz", "\xfd7zXZ\x00", 0, inflate},
		{"zstd", "\x28\xb5\x2f\xfd", 0, inflate},
		{"bzip2", "BZh", 0, inflate},
		{"lz4", "\x04\x22\x4d\x18", 0, inflate},
		{"zip", "PK\x03\x04", 0, extract},
		{"7z", "7z\xbc\xaf\x27\x1c", 0, extract},
		{"tar (an OVA file is one)", "ustar", 257, extract},
	}
}

// refuseForeign names the format of a file that is a disk or an archive of another kind.
func refuseForeign(r io.ReaderAt, size int64) error {
	for _, s := range signatures() {
		found, err := s.in(r, size)
		if err != nil {
			return err
		}
		if found {
			return fmt.Errorf("%w: it is in the format %s; %s", ErrForeignFormat, s.name, s.remedy)
		}
	}
	for _, t := range qcow2reader.Types {
		if t == qcow2.Type || t == raw.Type { // its qcow2 reader would open backing files
			continue
		}
		_, err := qcow2reader.OpenWithType(r, t)
		switch {
		case err == nil:
			return fmt.Errorf("%w: it is in the format %s; %s", ErrForeignFormat, t, convert)
		case !errors.Is(err, image.ErrWrongType) && !errors.Is(err, io.EOF):
			return fmt.Errorf("look for the format %s: %w", t, err)
		}
	}
	return nil
}

// in says whether the signature is in a file of size bytes.
func (s signature) in(r io.ReaderAt, size int64) (bool, error) {
	offset := s.offset
	if offset < 0 {
		offset += size
	}
	magic := make([]byte, len(s.magic))
	if offset < 0 || offset+int64(len(magic)) > size {
		return false, nil
	}
	if err := readFull(r, magic, offset); err != nil {
		return false, err
	}
	return bytes.Equal(magic, []byte(s.magic)), nil
}

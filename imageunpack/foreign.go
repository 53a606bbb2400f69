package imageunpack

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/lima-vm/go-qcow2reader"
	"github.com/lima-vm/go-qcow2reader/image"
	"github.com/lima-vm/go-qcow2reader/image/asif"
	"github.com/lima-vm/go-qcow2reader/image/qcow2"
	"github.com/lima-vm/go-qcow2reader/image/raw"
)

// signature identifies a format that is not supported.
type signature struct {
	name   string
	magic  string
	offset int64  // in bytes; below zero it counts from the file's end
	remedy string // the command that converts it into a disk
}

// convert returns the command for a format of QEMU. It names the format, because qemu-img
// takes some formats for raw disks when it has to guess.
func convert(format string) string {
	return "convert it with qemu-img convert -f " + format + " -O qcow2 FILE disk.qcow2"
}

func inflate(command string) string { return "decompress it with " + command }

const extract = "take the disk out of it with "

// signatures returns those of formats that go-qcow2reader doesn't support. ISO 9660 is not among them:
// such an image is a disk that boots as it is. Nor is an encrypted partition inside a disk.
func signatures() []signature {
	return []signature{
		{"qcow (version 1)", "QFI\xfb\x00\x00\x00\x01", 0, convert("qcow")},
		{"QED", "QED\x00", 0, convert("qed")},
		{"fixed VHD (vpc)", "conectix", -512, convert("vpc")},
		{"DMG", "koly\x00\x00\x00\x04", -512, convert("dmg")},
		{"Bochs", "Bochs Virtual HD Image", 0, convert("bochs")},
		{"LUKS, which is encrypted as a whole", "LUKS\xba\xbe", 0, "decrypt it with cryptsetup open FILE plain, " +
			"and then qemu-img convert -f raw -O qcow2 /dev/mapper/plain disk.qcow2"},
		{"Android sparse image", "\x3a\xff\x26\xed", 0, "convert it with simg2img FILE disk.img"},
		{"WIM", "MSWIM\x00\x00\x00", 0, "it holds files and is no disk: install its system on one"},
		{"gzip", "\x1f\x8b\x08", 0, inflate("gunzip <FILE >disk")},
		{"xz", "\xfd7zXZ\x00", 0, inflate("xz -d <FILE >disk")},
		{"zstd", "\x28\xb5\x2f\xfd", 0, inflate("zstd -d <FILE >disk")},
		{"bzip2", "BZh", 0, inflate("bunzip2 <FILE >disk")},
		{"lz4", "\x04\x22\x4d\x18", 0, inflate("lz4 -d <FILE >disk")},
		{"lzip", "LZIP\x01", 0, inflate("lzip -d <FILE >disk")},
		{"zip", "PK\x03\x04", 0, extract + "unzip FILE"},
		{"7z", "7z\xbc\xaf\x27\x1c", 0, extract + "7z x FILE"},
		{"tar (an OVA file is one)", "ustar", 257, extract + "tar -xf FILE"},
	}
}

// refuseForeign returns an error that names the format of a file in another disk or archive format.
func refuseForeign(r io.ReaderAt, size int64) error {
	for _, s := range signatures() {
		found, err := s.in(r, size)
		if err != nil {
			return err
		}
		if found {
			return foreign(s.name, s.remedy)
		}
	}
	for _, t := range qcow2reader.Types {
		if t == qcow2.Type || t == raw.Type { // its qcow2 reader would open backing files
			continue
		}
		_, err := qcow2reader.OpenWithType(r, t)
		switch {
		case err == nil:
			return foreign(string(t), libraryRemedy(t))
		case !errors.Is(err, image.ErrWrongType) && !errors.Is(err, io.EOF):
			return fmt.Errorf("look for the format %s: %w", t, err)
		}
	}
	return nil
}

func foreign(name, remedy string) error {
	return fmt.Errorf("%w: it is in the format %s; %s, and build the image from the result",
		ErrForeignFormat, name, remedy)
}

// libraryRemedy returns the remedy for a format that go-qcow2reader has found.
func libraryRemedy(t image.Type) string {
	if t == asif.Type {
		return "QEMU does not know it: make a raw disk of it on macOS"
	}
	return convert(string(t))
}

// in reports whether a file of size bytes has the signature.
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

package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"time"
)

// ErrUnusable says that a checkpoint is damaged, or none that this program can read.
var ErrUnusable = errors.New("unusable checkpoint")

const (
	// prefix begins the names of a checkpoint's files.
	prefix = "nodevirt-"
	// ManifestName is the name of the file that describes a checkpoint.
	ManifestName = prefix + "checkpoint.json"
	// memoryName is the name of the file with the guest's memory.
	memoryName = prefix + "memory.zst"

	// Version is the version of the format.
	Version = 1

	maxManifest = 1 << 20 // bytes
	maxDisks    = 256
	maxDevices  = 1024
	// maxFile bounds a file, in bytes, compressed and not.
	maxFile = 1 << 46

	// The limit of what all files expand to, in bytes, as for images: baseWork for any checkpoint, and workRatio
	// for each byte of the files.
	baseWork  = 16 << 30
	workRatio = 100
	// minExtra is what each disk may have beyond its share, also if others have used all of baseWork, in bytes.
	minExtra = 1 << 30
)

// diskName returns the name of the file with what the guest wrote to a disk.
func diskName(disk string) string { return prefix + "disk-" + disk + ".zst" }

// Manifest describes a checkpoint.
type Manifest struct {
	Version   int       `json:"version"`
	CreatedAt time.Time `json:"createdAt"`
	// Image is the id of the container's image.
	Image string `json:"image"`
	// Accelerator executed the guest's code. CPU identifies the node's CPU for a guest that
	// has all of it; empty for a named model.
	Accelerator string `json:"accelerator"`
	CPU         string `json:"cpu,omitempty"`
	// Firmware is the guest's UEFI firmware; nil for a BIOS.
	Firmware *Firmware `json:"firmware,omitempty"`
	// Shape and Devices are the domain's, as package compat reads them.
	Shape   json.RawMessage   `json:"shape"`
	Devices map[string]string `json:"devices"`
	// Agent says that the guest's agent had its port open.
	Agent bool `json:"agent,omitempty"`
	// Memory is QEMU's stream. Disks are those that the guest can write.
	Memory File   `json:"memory"`
	Disks  []Disk `json:"disks,omitempty"`
	// Bases identify the disks in images, written to or not, by the disks' names.
	Bases map[string]Base `json:"bases,omitempty"`
	// Volumes are the names of the disks on volumes. Snapshots of these volumes have their content.
	Volumes []string `json:"volumes,omitempty"`
}

// Firmware is what the UEFI firmware of both nodes must have in common.
type Firmware struct {
	// Code and Variables are sizes in bytes.
	Code      int64 `json:"code"`
	Variables int64 `json:"variables"`
	SMM       bool  `json:"smm,omitempty"`
}

// File is a file of a checkpoint.
type File struct {
	// Size is the size of the content in bytes, and Stored that of the compressed content.
	Size   int64 `json:"size"`
	Stored int64 `json:"stored"`
	// SHA256 is the hexadecimal checksum of the compressed content.
	SHA256 string `json:"sha256"`
}

// Disk is what a guest wrote to one of its disks.
type Disk struct {
	// Name is the disk's in the VM's spec.
	Name string `json:"name"`
	File
}

// Base identifies the content of a disk in an image.
type Base struct {
	// Image is the image's id, and Path the disk's in it.
	Image string `json:"image"`
	Path  string `json:"path"`
	// SHA256 is the hexadecimal checksum of the disk's file.
	SHA256 string `json:"sha256"`
}

var (
	sumPattern  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
)

// Files opens the files of a checkpoint by their names. A missing one is fs.ErrNotExist. A file has a method Size, or
// [os.File]'s Stat.
type Files interface {
	Open(name string) (io.ReadCloser, error)
}

// Read returns the manifest of a checkpoint. The error is fs.ErrNotExist if there is none, and
// [ErrUnusable] for one that cannot be used.
func Read(files Files) (Manifest, error) {
	f, err := files.Open(ManifestName)
	if err != nil {
		return Manifest{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return Manifest{}, fmt.Errorf("read %s: %w", ManifestName, err)
	}
	m, err := decode(data)
	if err != nil {
		return Manifest{}, fmt.Errorf("%w: %s: %w", ErrUnusable, ManifestName, err)
	}
	return m, nil
}

// decode decodes and checks a manifest.
func decode(data []byte) (Manifest, error) {
	if len(data) > maxManifest {
		return Manifest{}, fmt.Errorf("more than %d bytes", maxManifest)
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return Manifest{}, err
	}
	if head.Version != Version {
		return Manifest{}, fmt.Errorf("version %d; this program reads version %d", head.Version, Version)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var m Manifest
	if err := d.Decode(&m); err != nil {
		return Manifest{}, err
	}
	return m, m.check()
}

func (m Manifest) check() error {
	if len(m.Disks) > maxDisks || len(m.Bases) > maxDisks || len(m.Devices) > maxDevices {
		return fmt.Errorf("%d disks, %d images and %d devices; the limits are %d and %d", len(m.Disks), len(m.Bases), len(m.Devices), maxDisks, maxDevices)
	}
	if err := m.Memory.check(); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	seen := map[string]bool{}
	for _, d := range m.Disks {
		if !namePattern.MatchString(d.Name) || seen[d.Name] {
			return fmt.Errorf("disk %.80q: not a disk's name, or twice", d.Name)
		}
		seen[d.Name] = true
		if err := d.check(); err != nil {
			return fmt.Errorf("disk %q: %w", d.Name, err)
		}
	}
	if err := m.checkWork(); err != nil {
		return err
	}
	if len(m.Volumes) > maxDisks || slices.ContainsFunc(m.Volumes, func(name string) bool { return !namePattern.MatchString(name) }) {
		return fmt.Errorf("volumes %.80q: more than %d, or not disks' names", m.Volumes, maxDisks)
	}
	for name, b := range m.Bases {
		if !namePattern.MatchString(name) || !sumPattern.MatchString(b.SHA256) {
			return fmt.Errorf("image of disk %.80q: no checksum", name)
		}
	}
	return nil
}

// checkWork refuses a checkpoint of few bytes that expands to very many: it would keep the node busy for hours.
func (m Manifest) checkWork() error {
	size, stored := m.Memory.Size, m.Memory.Stored
	for _, d := range m.Disks {
		size, stored = size+d.Size, stored+d.Stored
	}
	if most := baseWork + workRatio*stored; size > most {
		return fmt.Errorf("%d bytes hold memory and disks of %d bytes, and at most %d are supported: fill free blocks of the guest's disks with zeros",
			stored, size, most)
	}
	return nil
}

// Extra returns how many bytes other than zeros a disk may expand to beyond workRatio for each of its compressed bytes that was read: what
// the memory allows, and the disks before it have not used. A disk counts when its checksum is known, so read the memory
// first, and then the disks in their order.
func (m Manifest) Extra(disk string) int64 {
	extra := baseWork + workRatio*m.Memory.Stored
	for _, d := range m.Disks {
		if d.Name == disk {
			break
		}
		extra -= d.Size - workRatio*d.Stored
	}
	return max(extra, minExtra)
}

// CheckSizes returns [ErrUnusable] unless the files are as large as the manifest says. Call it before anything that is
// decided by these sizes.
func (m Manifest) CheckSizes(files Files) error {
	err := checkSize(files, memoryName, m.Memory.Stored)
	for _, d := range m.Disks {
		if err == nil {
			err = checkSize(files, diskName(d.Name), d.Stored)
		}
	}
	return err
}

func checkSize(files Files, name string, want int64) error {
	f, err := open(files, name)
	if err != nil {
		return err
	}
	defer f.Close()
	size := int64(-1)
	switch f := f.(type) {
	case interface{ Size() int64 }:
		size = f.Size()
	case interface{ Stat() (fs.FileInfo, error) }:
		info, err := f.Stat()
		if err != nil {
			return err
		}
		size = info.Size()
	}
	if size != want {
		return fmt.Errorf("%w: %s has %d bytes, and %d in %s: copy the checkpoint again", ErrUnusable, name, size, want, ManifestName)
	}
	return nil
}

func (f File) check() error {
	if f.Size < 0 || f.Size > maxFile || f.Stored < 0 || f.Stored > maxFile {
		return fmt.Errorf("%d bytes, compressed %d", f.Size, f.Stored)
	}
	if most := f.Size + f.Size/64 + 64<<10; f.Stored > most {
		return fmt.Errorf("%d bytes, compressed %d: at most %d are needed", f.Size, f.Stored, most)
	}
	if !sumPattern.MatchString(f.SHA256) {
		return fmt.Errorf("checksum %.80q", f.SHA256)
	}
	return nil
}

// Disk returns what a guest wrote to a disk.
func (m Manifest) Disk(name string) (Disk, bool) {
	for _, d := range m.Disks {
		if d.Name == name {
			return d, true
		}
	}
	return Disk{}, false
}

// folder opens the files of a checkpoint by a function.
type folder func(name string) (io.ReadCloser, error)

func (f folder) Open(name string) (io.ReadCloser, error) { return f(name) }

// Folder returns the files that open opens. Errors that match missing mean that there is no
// such file.
func Folder(missing error, open func(name string) (io.ReadCloser, error)) Files {
	return folder(func(name string) (io.ReadCloser, error) {
		f, err := open(name)
		if errors.Is(err, missing) {
			err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
		}
		if err != nil {
			return nil, err
		}
		return f, nil
	})
}

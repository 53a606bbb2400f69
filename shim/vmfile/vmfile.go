// Package vmfile makes the files that a VM owns beside its disks, such as its kernel.
//
// It owns the table of these files: where each comes from, its name in the
// container's folder, its mode, and its place in the domain. Disks are package
// disk's; when files are made and removed is package vm's.
package vmfile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/credential"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/shim/vmstate"
)

// ErrInvalid says that the pod asks for a file that can't be used.
var ErrInvalid = errdefs.ErrInvalidArgument.WithMessage("unusable file")

// file is a row of the table.
type file struct {
	// name is the file's in the container's folder.
	name string
	// field is the VMI's that asks for the file, for errors.
	field  string
	source func(record.Container) source
	mode   fs.FileMode
	// limit bounds the size, in bytes. An image must not fill the node.
	limit int64
	// describe sets the file's path in the domain.
	describe func(*domain.Description, string)
}

// source is where a file comes from. One of its fields, and node beside state, is set if the VM needs
// the file.
type source struct {
	image string            // path in the image of the kernel
	node  string            // path of a file of the node's own packages
	state string            // folder of the VM's persistent state, whose first content is that of node
	table *vmspec.ACPITable // key of a Secret
	text  string            // of the pod's annotation
}

func (s source) none() bool { return s == source{} }

const (
	kibibyte = 1 << 10
	mebibyte = 1 << 20
	gibibyte = 1 << 30
)

// table lists the files. QEMU opens them by path, as the VM's user, who owns them.
func table() []file {
	kernel := func(r record.Container) vmspec.Kernel {
		if r.Spec.Firmware.Kernel == nil {
			return vmspec.Kernel{}
		}
		return *r.Spec.Firmware.Kernel
	}
	const container, acpi = "spec.domain.firmware.kernelBoot.container.", "spec.domain.firmware.acpi."
	return []file{
		{
			name: "kernel", field: container + "kernelPath", mode: 0o400, limit: gibibyte,
			source:   func(r record.Container) source { return source{image: kernel(r).Path} },
			describe: func(m *domain.Description, path string) { m.Kernel = path },
		},
		{
			name: "initrd", field: container + "initrdPath", mode: 0o400, limit: gibibyte,
			source:   func(r record.Container) source { return source{image: kernel(r).Initrd} },
			describe: func(m *domain.Description, path string) { m.Initrd = path },
		},
		{
			name: variablesName, field: "spec.domain.firmware.bootloader.efi", mode: 0o600, limit: maxVariables,
			source: func(r record.Container) source {
				switch {
				case r.Firmware == nil:
					return source{}
				case persistent(r) && r.Incoming == "": // those of a guest that comes, come with it
					return source{node: r.Firmware.Variables, state: r.Spec.State.Folder}
				}
				return source{node: r.Firmware.Variables}
			},
			describe: func(m *domain.Description, path string) { m.UEFIVariables = path },
		},
		acpiTable("SLIC", acpi+"slicNameRef"),
		acpiTable("MSDM", acpi+"msdmNameRef"),
		{
			name: "ignition", field: kubevirt.IgnitionAnnotation, mode: 0o400, limit: gibibyte,
			source: func(r record.Container) source {
				return source{text: vmspec.Ignition(r.Sandbox.Value.GetAnnotations())}
			},
			describe: func(m *domain.Description, path string) { m.Ignition = path },
		},
	}
}

// acpiTable is the row of an ACPI table.
func acpiTable(signature, field string) file {
	return file{
		name: "acpi-" + signature, field: field, mode: 0o400, limit: 64 * kibibyte,
		source: func(r record.Container) source {
			for _, t := range r.Spec.Firmware.Tables {
				if t.Signature == signature {
					return source{table: &t}
				}
			}
			return source{}
		},
		describe: func(m *domain.Description, path string) {
			m.ACPITables = append(m.ACPITables, domain.ACPITable{Signature: signature, Path: path})
		},
	}
}

// opener opens files of images, as [imageunpack.Unpacker] does.
type opener interface {
	Open(ctx context.Context, d imageunpack.Disk, name string) (*os.File, error)
}

// Files makes the files of VMs. Its methods may be called at the same time for
// different containers.
type Files struct {
	images opener
	folder func(id string) string
}

// New returns Files that reads images and writes to the containers' folders.
func New(images opener, folder func(id string) string) *Files {
	return &Files{images: images, folder: folder}
}

// Create makes the files of a container whose folder and record exist, and whose user
// is known. Image is that of the VM's kernel, and nil only for a VM that has none. Errors that the pod causes are ErrInvalid, or those of imageunpack.
func (f *Files) Create(ctx context.Context, r record.Container, image *imageunpack.Disk) error {
	for _, row := range table() {
		from := row.source(r)
		if from.none() {
			continue
		}
		if err := f.make(ctx, row, r, image, from); err != nil {
			if errors.Is(err, imageunpack.ErrUnusable) {
				err = fmt.Errorf("%w: %w", ErrInvalid, err)
			}
			return fmt.Errorf("%s: %s: %w", vmspec.AnnotationVMI, row.field, err)
		}
	}
	return nil
}

// make makes one file.
func (f *Files) make(ctx context.Context, row file, r record.Container, image *imageunpack.Disk, from source) error {
	switch {
	case from.text != "":
		return f.write(row, r, strings.NewReader(from.text), "the annotation")
	case from.table != nil:
		text, err := acpi(*from.table)
		if err != nil {
			return err
		}
		return f.write(row, r, strings.NewReader(text), "the table")
	case from.state != "":
		src, err := vmstate.Variables(from.state, from.node)
		if errors.Is(err, vmstate.ErrUnusable) {
			err = fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if err != nil {
			return err
		}
		defer src.Close()
		return f.write(row, r, src, "the persistent UEFI variables")
	case from.node != "":
		src, err := os.Open(from.node)
		if err != nil {
			return fmt.Errorf("copy the node's firmware: %w", err)
		}
		defer src.Close()
		return f.write(row, r, src, from.node)
	case image == nil:
		return fmt.Errorf("make file %s: the kernel's image is not held", row.name)
	}
	src, err := f.images.Open(ctx, *image, from.image)
	if err != nil {
		return err
	}
	defer src.Close()
	return f.write(row, r, src, from.image+" of image "+image.Image)
}

// acpiHeader is the size of a table's header, in bytes, which begins with the signature
// and the length (ACPI specification, "System Description Table Header").
const acpiHeader = 36

// acpi returns an ACPI table, which QEMU copies as it is.
func acpi(t vmspec.ACPITable) (string, error) {
	text, err := credential.Value(t.Secret, t.Key())
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err != nil {
		return "", err
	}
	if len(text) < acpiHeader || text[:4] != t.Signature || binary.LittleEndian.Uint32([]byte(text[4:8])) != uint32(len(text)) {
		return "", fmt.Errorf("%w: key %s of volume %s is no ACPI table %s with a header and its length", ErrInvalid, t.Key(), t.Secret.Name, t.Signature)
	}
	return text, nil
}

// write copies src, which errors call what, to a file of the VM's user.
func (f *Files) write(row file, r record.Container, src io.Reader, what string) (err error) {
	path := f.path(r.ID, row)
	dst, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, row.mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	n, err := io.Copy(dst, io.LimitReader(src, row.limit+1))
	if err != nil {
		return fmt.Errorf("copy %s: %w", what, err)
	}
	if n > row.limit {
		return fmt.Errorf("%w: %s is larger than %d KiB", ErrInvalid, what, row.limit/kibibyte)
	}
	if err := dst.Chown(int(r.Domain.UID), int(r.Domain.GID)); err != nil {
		return fmt.Errorf("give %s to the VM's user: %w", path, err)
	}
	return nil
}

// Remove removes the files of a container. It is for a container whose folder stays:
// the folder's removal takes them along.
func (f *Files) Remove(id string) error {
	var errs []error
	for _, row := range table() {
		if err := os.Remove(f.path(id, row)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Describe sets the paths of a container's files in its domain.
func (f *Files) Describe(r record.Container, m *domain.Description) {
	for _, row := range table() {
		if !row.source(r).none() {
			row.describe(m, f.path(r.ID, row))
		}
	}
}

func (f *Files) path(id string, row file) string { return filepath.Join(f.folder(id), row.name) }

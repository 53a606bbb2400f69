package save

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/compat"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// describe returns what a checkpoint says of the VM, but for its shape, its memory and its disks.
func (s *Saves) describe(ctx context.Context, v *table.VM) (checkpoint.Manifest, error) {
	r := v.Record()
	m := checkpoint.Manifest{
		CreatedAt: time.Now(), Image: r.Image.ID, Accelerator: string(s.o.Accelerator), Bases: map[string]checkpoint.Base{},
		Agent: s.o.Agents.State(v).Presence == agent.Present,
	}
	guest, err := s.o.Moves.Guest(r)
	if err != nil {
		return m, err
	}
	m.CPU = guest.CPU
	if f := guest.Firmware; f != nil {
		m.Firmware = &checkpoint.Firmware{Code: f.Code, Variables: f.Variables, SMM: f.SMM}
	}
	text, err := domain.XML(s.o.Describe(r))
	if err != nil {
		return m, err
	}
	if m.Devices, err = compat.Outline(text); err != nil {
		return m, err
	}
	for name, d := range r.Disks {
		if d.Image == nil {
			continue
		}
		f, err := s.o.Images.Open(ctx, *d.Image, d.Image.Path)
		if err != nil {
			return m, fmt.Errorf("disk %q: %w", name, err)
		}
		sum, err := Checksum(ctx, f)
		if err != nil {
			return m, fmt.Errorf("disk %q: read its image: %w", name, err)
		}
		m.Bases[name] = checkpoint.Base{Image: d.Image.ImageID, Path: d.Image.Path, SHA256: sum}
	}
	return m, nil
}

// Checksum returns the hexadecimal SHA-256 of a file, and closes it.
func Checksum(ctx context.Context, f *os.File) (string, error) {
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, checkpoint.Within(ctx, f)); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// content saves a paused guest.
func (s *Saves) content(ctx context.Context, r record.Container, w *checkpoint.Writer, m *checkpoint.Manifest) error {
	short, cancel := background.AtMost(ctx, patience)
	defer cancel()
	text, err := s.o.Domains.MigratableXML(short, r.Domain.UUID)
	if err != nil {
		return err
	}
	if m.Shape, err = compat.Encode(text); err != nil {
		return err
	}
	if m.Memory, err = s.memory(ctx, r, w); err != nil {
		return err
	}
	files := s.o.Disks.Written(r)
	for _, d := range r.Spec.Disks {
		path, written := files[d.Name]
		if !written {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("disk %q: %w", d.Name, err)
		}
		one, err := w.AddDisk(d.Name, checkpoint.Within(ctx, f))
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("disk %q: %w", d.Name, err)
		}
		m.Disks = append(m.Disks, one)
	}
	return nil
}

// memory saves the guest's memory by a pipe from QEMU.
func (s *Saves) memory(ctx context.Context, r record.Container, w *checkpoint.Writer) (checkpoint.File, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return checkpoint.File{}, err
	}
	type result struct {
		file checkpoint.File
		err  error
	}
	done := make(chan result, 1)
	go func() {
		f, err := w.AddMemory(from)
		from.Close() // QEMU must not wait for what nothing reads
		done <- result{f, err}
	}()
	err = s.o.Domains.SaveMemory(ctx, r.Domain.UUID, to)
	to.Close()
	if err != nil {
		from.Close() // QEMU may still have its end, if libvirtd does not answer
	}
	all := <-done
	return all.file, errors.Join(all.err, err)
}

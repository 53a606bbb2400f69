package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/bench/report"
)

// access is how a disk is read by qemu-img bench, in bytes and numbers of requests.
type access struct {
	name               string
	size, step, number int64
	depth              int
}

// accesses read all of the content in sequence, or jump about it: a step that has no divisor in
// common with the disk comes to every block.
func accesses() []access {
	const large, small, jump = 1 << 20, 4 << 10, 104_729 * (4 << 10)
	return []access{
		{"1 MiB sequential, depth 1", large, large, contentSize / large, 1},
		{"1 MiB sequential, depth 16", large, large, contentSize / large, 16},
		{"4 KiB random, depth 1", small, jump, 5_000, 1},
		{"4 KiB random, depth 16", small, jump, 10_000, 16},
	}
}

// blockIO compares reads of a VM's disk, as its QEMU does them, with reads of the same content in a
// file of the same format that qemu-img made.
func (r *rig) blockIO(ctx context.Context) (s report.Section, err error) {
	s.Title = fmt.Sprintf("Reads by QEMU's block layer, without a guest, of %d MiB: a VM's disk, against a plain file", contentSize>>20)
	s.Notes = []string{
		"A plain file: of mode raw a raw one that qemu-img made, of mode file the image's qcow2 without",
		"an overlay. Times of the same number of reads; 0.95 of the throughput is 1.05 of the time.",
	}
	for _, f := range formats()[:2] {
		rows, err := r.blockIOof(ctx, f)
		if err != nil {
			return s, err
		}
		s.Rows = append(s.Rows, rows...)
	}
	return s, nil
}

func (r *rig) blockIOof(ctx context.Context, f format) (rows []report.Row, err error) {
	path, err := r.contentDisk(ctx, f, contentSize)
	if err != nil {
		return nil, err
	}
	image, err := r.pushDisk(ctx, "blockio-"+f.name+":1", path)
	if err != nil {
		return nil, err
	}
	plain := filepath.Join(r.Dir(), "plain-"+f.name+".raw")
	if err := qemuImg(ctx, "convert", "-f", "qcow2", "-O", "raw", path, plain); err != nil {
		return nil, err
	}
	folder := func(id string) string { return filepath.Join(r.Dir(), "nodevirt/containers", id) }
	for _, m := range []struct {
		mode  vmspec.Mode
		alone string // how qemu-img opens the plain file
		own   func(id string) string
	}{
		{vmspec.ModeRaw, "driver=raw,file.driver=file,file.filename=" + plain, func(id string) string {
			return "driver=raw,file.driver=file,file.filename=" + filepath.Join(folder(id), "disk.raw")
		}},
		{vmspec.ModeFile, "driver=qcow2,file.driver=file,file.filename=" + path, func(id string) string {
			return "driver=qcow2,file.driver=file,file.filename=" + filepath.Join(folder(id), "disk.qcow2") +
				",backing.driver=qcow2,backing.file.driver=file,backing.file.filename=" + path
		}},
	} {
		p, err := r.diskPod(ctx, "blockio-"+f.name+"-"+string(m.mode), m.mode)
		if err != nil {
			return nil, err
		}
		id, err := p.create(ctx, "guest", image)
		if err != nil {
			return nil, err
		}
		for _, a := range accesses() {
			times, err := turns(ctx, r.diskRounds(), a.side("plain", m.alone), a.side(string(m.mode), m.own(id)))
			if err != nil {
				return nil, err
			}
			rows = append(rows, report.Row{
				Name: fmt.Sprintf("%s, %s, %s", m.mode, f.name, a.name), Unit: "ms", Kind: report.Ratio, Goal: 1.05,
				Baseline: times[0], Measured: times[1],
			})
		}
	}
	return rows, nil
}

// side reads a disk.
func (a access) side(of, disk string) side {
	return side{of: of, do: func(ctx context.Context) error {
		return qemuImg(ctx, append([]string{"bench"}, a.args(disk)...)...)
	}}
}

// args are qemu-img bench's.
func (a access) args(disk string) []string {
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []string{"--image-opts", "-c", text(a.number), "-d", strconv.Itoa(a.depth), "-s", text(a.size), "-S", text(a.step), disk}
}

// blockISCSI compares reads of a disk that the shim exports with those of a raw file that a plain
// tgtd serves, of the same content.
func (r *rig) blockISCSI(ctx context.Context) (s report.Section, err error) {
	s.Title = fmt.Sprintf("Reads over iSCSI, without a guest, of %d MiB: an export, against a plain tgtd, on %s", contentSize>>20, r.fileSystem())
	s.Notes = []string{"The plain tgtd has its defaults, and serves a raw file that qemu-img made."}
	f := formats()[0]
	path, err := r.contentDisk(ctx, f, contentSize)
	if err != nil {
		return s, err
	}
	image, err := r.pushDisk(ctx, "iscsi-"+f.name+":1", path)
	if err != nil {
		return s, err
	}
	own, err := r.export(ctx, "bench", image)
	if err != nil {
		return s, err
	}
	plain := filepath.Join(r.Dir(), "plain.raw")
	if err := qemuImg(ctx, "convert", "-f", "qcow2", "-O", "raw", path, plain); err != nil {
		return s, err
	}
	stop, err := r.tgtdAlone(ctx, plain)
	if err != nil {
		return s, err
	}
	defer stop()
	alone := overTCP(alonePortal, aloneTarget, 1)
	for _, a := range accesses() {
		times, err := turns(ctx, r.diskRounds(), a.overISCSI(r, "plain tgtd", alone), a.overISCSI(r, "export", own))
		if err != nil {
			return s, err
		}
		s.Rows = append(s.Rows, report.Row{Name: a.name, Unit: "ms", Kind: report.Ratio, Baseline: times[0], Measured: times[1]})
	}
	return s, nil
}

// overISCSI reads a disk from within the node.
func (a access) overISCSI(r *rig, of, disk string) side {
	return side{of: of, do: func(ctx context.Context) error {
		_, err := r.Output(ctx, "qemu-img", append([]string{"bench"}, a.args(disk)...)...)
		return err
	}}
}

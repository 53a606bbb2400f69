package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	unit        = 1 << 20 // sizes are multiples of it
	defaultSize = 1 << 30
	// leastFileSystem is the least size in bytes that mkfs.xfs takes.
	leastFileSystem = 16 << 20
	maxName         = 1024 // longer than any that a caller makes
)

// CreateVolume makes a volume: blank, or a copy of a volume or a snapshot.
func (c *controller) CreateVolume(_ context.Context, r *spec.CreateVolumeRequest) (*spec.CreateVolumeResponse, error) {
	if err := checkCreate(r); err != nil {
		return nil, err
	}
	name := id(r.GetName())
	release, err := c.busy.take(name)
	if err != nil {
		return nil, err
	}
	defer release()
	from := source{r.GetVolumeContentSource().GetVolume().GetVolumeId(), r.GetVolumeContentSource().GetSnapshot().GetSnapshotId()}
	old, err := c.volumes.get(name)
	if err == nil {
		if old.Source != from || !inRange(old.Bytes, r.GetCapacityRange()) {
			return nil, status.Errorf(codes.AlreadyExists, "volume %s exists with another size or source", r.GetName())
		}
		return created(name, old, r), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, least, err := c.content(from)
	if err != nil {
		return nil, err
	}
	capacity := r.GetCapacityRange()
	if slices.ContainsFunc(r.GetVolumeCapabilities(), func(way *spec.VolumeCapability) bool { return way.GetMount() != nil }) {
		capacity = forFileSystem(capacity)
	}
	bytes, err := c.size(capacity, least)
	if err != nil {
		return nil, err
	}
	v := &volume{Name: r.GetName(), Bytes: bytes, Block: r.GetVolumeCapabilities()[0].GetBlock() != nil, Source: from}
	err = c.volumes.create(name, v, func(data *os.File) error {
		if file != "" {
			if err := copyData(data, file, least); err != nil {
				return err
			}
		}
		return data.Truncate(bytes)
	})
	if err != nil {
		return nil, err
	}
	return created(name, v, r), nil
}

func checkCreate(r *spec.CreateVolumeRequest) error {
	if r.GetName() == "" || len(r.GetName()) > maxName {
		return invalid("want a name of at most %d bytes", maxName)
	}
	for key := range r.GetParameters() {
		if !strings.HasPrefix(key, "csi.storage.k8s.io/") {
			return invalid("unknown parameter %s: remove it from the StorageClass", key)
		}
	}
	if len(r.GetMutableParameters()) > 0 {
		return invalid("mutable parameters are not supported")
	}
	return checkAll(r.GetVolumeCapabilities())
}

func created(id string, v *volume, r *spec.CreateVolumeRequest) *spec.CreateVolumeResponse {
	return &spec.CreateVolumeResponse{Volume: &spec.Volume{
		VolumeId: id, CapacityBytes: v.Bytes, ContentSource: r.GetVolumeContentSource(),
	}}
}

// content is the file that a new volume begins as a copy of, and its size; an empty name if it is blank.
func (c *controller) content(from source) (file string, bytes int64, err error) {
	switch {
	case from.Snapshot != "":
		s, err := c.snapshots.get(from.Snapshot)
		if err != nil {
			return "", 0, err
		}
		return c.snapshots.data(from.Snapshot), s.Bytes, nil
	case from.Volume != "":
		v, err := c.volumes.get(from.Volume)
		if err != nil {
			return "", 0, err
		}
		return c.volumes.data(from.Volume), v.Bytes, c.flush(from.Volume)
	}
	return "", 0, nil
}

// size is a new volume's, of at least some bytes.
func (c *controller) size(r *spec.CapacityRange, least int64) (int64, error) {
	want := r.GetRequiredBytes()
	if want == 0 {
		want = max(least, defaultSize)
		if limit := r.GetLimitBytes(); limit > 0 {
			want = min(want, limit/unit*unit)
		}
	}
	bytes := roundUp(want)
	free, err := c.free()
	if err != nil {
		return 0, err
	}
	switch {
	case want < 0 || r.GetLimitBytes() < 0:
		return 0, invalid("a size is negative")
	case bytes < least:
		return 0, status.Errorf(codes.OutOfRange, "%d bytes are less than the source's %d", bytes, least)
	case bytes == 0 || !inRange(bytes, r):
		return 0, status.Errorf(codes.OutOfRange, "no multiple of %d bytes is in the range %v", unit, r)
	case bytes > free:
		return 0, status.Errorf(codes.OutOfRange, "%d bytes are more than the %d that are free", bytes, free)
	}
	return bytes, nil
}

// forFileSystem is a range without what is too small for a file system, unless nothing else is in it.
func forFileSystem(r *spec.CapacityRange) *spec.CapacityRange {
	if want := r.GetRequiredBytes(); want > 0 && want < leastFileSystem && (r.GetLimitBytes() == 0 || r.GetLimitBytes() >= leastFileSystem) {
		return &spec.CapacityRange{RequiredBytes: leastFileSystem, LimitBytes: r.GetLimitBytes()}
	}
	return r
}

func roundUp(bytes int64) int64 { return (bytes + unit - 1) / unit * unit }

func inRange(bytes int64, r *spec.CapacityRange) bool {
	return bytes >= r.GetRequiredBytes() && (r.GetLimitBytes() == 0 || bytes <= r.GetLimitBytes())
}

// free is how many bytes the folder's file system has left.
func (s state) free() (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(s.volumes.dir, &fs); err != nil {
		return 0, fmt.Errorf("find free space: %w", err)
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}

// DeleteVolume removes a volume that no node has.
func (c *controller) DeleteVolume(_ context.Context, r *spec.DeleteVolumeRequest) (*spec.DeleteVolumeResponse, error) {
	name := r.GetVolumeId()
	if name == "" {
		return nil, invalid("no volume id is given")
	}
	release, err := c.busy.take(name)
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := c.volumes.get(name)
	if errors.Is(err, fs.ErrNotExist) {
		return &spec.DeleteVolumeResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	if len(v.Attached) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached: detach it first", name)
	}
	return &spec.DeleteVolumeResponse{}, c.volumes.remove(name)
}

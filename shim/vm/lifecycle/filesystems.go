package lifecycle

import (
	"cmp"
	"context"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/virtiofs"
)

// startFilesystems starts the virtiofsd of the VM's file systems, in the VM's cgroup. Where a
// file system has no ID-mapped mounts, virtiofsd is the container's user, but never root.
func (s *start) startFilesystems(ctx context.Context) error {
	if len(s.rec.Spec.Filesystems) == 0 {
		return nil
	}
	var folders []virtiofs.Folder
	for _, f := range s.rec.Spec.Filesystems {
		folders = append(folders, virtiofs.Folder{Path: f.Host, ReadOnly: f.ReadOnly})
	}
	d := s.rec.Domain
	user := uint32(s.rec.Config.Value.GetLinux().GetSecurityContext().GetRunAsUser().GetValue())
	return s.parts.filesystems.Start(ctx, virtiofs.Owner{ID: s.rec.ID, Client: d.UID, User: cmp.Or(user, d.UID)}, folders,
		func(pid int) error { return s.parts.groups.Add(s.rec, pid) })
}

func (t *teardown) removeFilesystems(ctx context.Context, r *record.Container) error {
	if len(r.Spec.Filesystems) == 0 {
		return nil
	}
	return t.filesystems.Remove(ctx, r.ID)
}

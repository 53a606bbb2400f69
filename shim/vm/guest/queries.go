package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// queries are the controls that ask the guest agent. They answer in the types of
// KubeVirt's subresources, as JSON.
type queries struct{ agents *Agents }

func (q queries) ping(ctx context.Context, v *table.VM) ([]byte, error) {
	return nil, q.agents.Of(v).Queries.Ping(ctx)
}

// info returns as much as the agent reports. The agent may refuse each part but the system.
func (q queries) info(ctx context.Context, v *table.VM) ([]byte, error) {
	a := q.agents.Of(v).Queries
	commands, err := a.Commands(ctx)
	if err != nil {
		return nil, err
	}
	s, _ := a.State(ctx)
	info := kubevirtv1.VirtualMachineInstanceGuestAgentInfo{GAVersion: s.Version, Hostname: s.Hostname}
	if s.OS != nil {
		info.OS = kubevirtv1.VirtualMachineInstanceGuestOSInfo{
			ID: s.OS.ID, Name: s.OS.Name, PrettyName: s.OS.Name, VersionID: s.OS.Version, Version: s.OS.Version,
			KernelRelease: s.OS.Kernel, Machine: s.OS.Machine,
		}
	}
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		info.SupportedCommands = append(info.SupportedCommands, kubevirtv1.GuestAgentCommandInfo{Name: name, Enabled: commands[name]})
	}
	if zone, offset, err := a.Timezone(ctx); err == nil {
		info.Timezone = fmt.Sprintf("%s, %d", zone, offset)
	}
	if users, err := a.Users(ctx); err == nil {
		info.UserList = kubevirtUsers(users)
	}
	if found, err := a.Filesystems(ctx); err == nil {
		info.FSInfo.Filesystems = kubevirtFilesystems(found)
	}
	return json.Marshal(info)
}

func (q queries) users(ctx context.Context, v *table.VM) ([]byte, error) {
	users, err := q.agents.Of(v).Queries.Users(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(kubevirtv1.VirtualMachineInstanceGuestOSUserList{Items: kubevirtUsers(users)})
}

func kubevirtUsers(users []agent.User) []kubevirtv1.VirtualMachineInstanceGuestOSUser {
	all := []kubevirtv1.VirtualMachineInstanceGuestOSUser{}
	for _, u := range users {
		user := kubevirtv1.VirtualMachineInstanceGuestOSUser{UserName: u.Name, Domain: u.Domain}
		if !u.LoggedIn.IsZero() {
			user.LoginTime = float64(u.LoggedIn.UnixMicro()) / 1e6
		}
		all = append(all, user)
	}
	return all
}

func (q queries) filesystems(ctx context.Context, v *table.VM) ([]byte, error) {
	found, err := q.agents.Of(v).Queries.Filesystems(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(kubevirtv1.VirtualMachineInstanceFileSystemList{Items: kubevirtFilesystems(found)})
}

func kubevirtFilesystems(found []agent.Filesystem) []kubevirtv1.VirtualMachineInstanceFileSystem {
	all := []kubevirtv1.VirtualMachineInstanceFileSystem{}
	for _, f := range found {
		fs := kubevirtv1.VirtualMachineInstanceFileSystem{
			DiskName: f.Name, MountPoint: f.MountPoint, FileSystemType: f.Type,
			UsedBytes: int(f.Used), TotalBytes: int(f.Total),
		}
		for _, d := range f.Disks {
			fs.Disk = append(fs.Disk, kubevirtv1.VirtualMachineInstanceFileSystemDisk{Serial: d.Serial, BusType: d.Bus})
		}
		all = append(all, fs)
	}
	return all
}

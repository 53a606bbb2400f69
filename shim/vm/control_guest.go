package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
)

// The controls that ask the guest's agent answer in the types of KubeVirt's subresources, as JSON.

func (m *Manager) pingAgent(ctx context.Context, c *machine) ([]byte, error) {
	return nil, m.agent(c).Ping(ctx)
}

// guestInfo tells as much as the agent does: of the parts beside the system an agent may refuse each.
func (m *Manager) guestInfo(ctx context.Context, c *machine) ([]byte, error) {
	a := m.agent(c)
	commands, err := a.Commands(ctx)
	if err != nil {
		return nil, err
	}
	s := a.Look(ctx)
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

func (m *Manager) guestUsers(ctx context.Context, c *machine) ([]byte, error) {
	users, err := m.agent(c).Users(ctx)
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

func (m *Manager) guestFilesystems(ctx context.Context, c *machine) ([]byte, error) {
	found, err := m.agent(c).Filesystems(ctx)
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

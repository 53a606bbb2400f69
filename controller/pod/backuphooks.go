package pod

import (
	"strconv"
	"strings"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/config"
)

// The beginnings of pods' annotations by which Velero runs a command before and after it backs up PVCs;
// velero.io/docs/latest/backup-hooks.
const (
	beforeBackup = "pre.hook.backup.velero.io/"
	afterBackup  = "post.hook.backup.velero.io/"
)

// AnnotationBackupHook is the one annotation of [BackupHooks] by which a pod is known to have them.
const AnnotationBackupHook = beforeBackup + "container"

// BackupHooks returns the annotations by which a backup of an instance's PVCs freezes the guest's file systems. They
// are KubeVirt's, whose command nodes have. None has an instance that shall not be frozen, or that has other hooks.
func BackupHooks(vmi *kubevirt.VirtualMachineInstance, c config.Config) map[string]string {
	skips, says := vmi.Annotations[config.AnnotationSkipBackupHooks]
	if !says {
		skips = c.SkipsBackupHooks
	}
	if skip, _ := strconv.ParseBool(skips); skip || hasOwnHooks(vmi) {
		return nil
	}
	return allBackupHooks(vmi)
}

func allBackupHooks(vmi *kubevirt.VirtualMachineInstance) map[string]string {
	command := func(does string) string {
		return `["/usr/bin/virt-freezer","` + does + `","--name",` + strconv.Quote(vmi.Name) + `,"--namespace",` + strconv.Quote(vmi.Namespace) + `]`
	}
	return map[string]string{
		AnnotationBackupHook:      Container,
		beforeBackup + "command":  command("--freeze"),
		beforeBackup + "timeout":  "60s",
		afterBackup + "container": Container,
		afterBackup + "command":   command("--unfreeze"),
	}
}

// hasOwnHooks reports whether an instance's author gave it hooks of backups.
func hasOwnHooks(vmi *kubevirt.VirtualMachineInstance) bool {
	for key := range vmi.Annotations {
		if strings.HasPrefix(key, beforeBackup) || strings.HasPrefix(key, afterBackup) {
			return true
		}
	}
	return false
}

// ChangeBackupHooks returns how a pod's annotations differ from [BackupHooks]: nil is one that it must lose. The pod
// needs only [AnnotationBackupHook] of them.
func ChangeBackupHooks(vmi *kubevirt.VirtualMachineInstance, annotations map[string]string, c config.Config) map[string]any {
	wanted, changes := BackupHooks(vmi, c), map[string]any{}
	if _, has := annotations[AnnotationBackupHook]; has == (wanted != nil) || hasOwnHooks(vmi) {
		return changes
	}
	for key, value := range wanted {
		changes[key] = value
	}
	if wanted == nil {
		for key := range allBackupHooks(vmi) {
			changes[key] = nil
		}
	}
	return changes
}

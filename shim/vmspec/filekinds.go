package vmspec

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// The labels of disks with files, as in KubeVirt.
const (
	defaultLabel = "cfgdata"
	sysprepLabel = "unattendCD"
)

// fileKinds returns the rows of [VolumeKinds] whose disks hold files that the kubelet
// writes to a volume of the pod.
func fileKinds() []VolumeKind {
	label := fields.At("volumeLabel", volumeLabel)
	return []VolumeKind{
		{
			Source: SourceConfigMap, Field: "configMap", Needs: NeedFiles, Fixed: true, Transfer: TransferRemade, Shows: true,
			given: func(g kubevirt.Volume) bool { return g.ConfigMap != nil },
			read: func(v *volumes, at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList) {
				d, problems := v.files(at, g.Name, Disk{Source: SourceConfigMap, Label: g.ConfigMap.VolumeLabel})
				return d, append(problems, required(at.Child("name"), g.ConfigMap.Name)...)
			},
			pod: func(g *kubevirt.Volume) PodVolume {
				return PodVolume{Source: &corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: g.ConfigMap.LocalObjectReference, Optional: g.ConfigMap.Optional,
				}}}
			},
			rows: []fields.Row{fields.At("name", fields.Subdomain), fields.At("optional", fields.Boolean), label},
		},
		{
			Source: SourceSecret, Field: "secret", Needs: NeedFiles, Fixed: true, Transfer: TransferRemade, Shows: true,
			given: func(g kubevirt.Volume) bool { return g.Secret != nil },
			read: func(v *volumes, at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList) {
				d, problems := v.files(at, g.Name, Disk{Source: SourceSecret, Label: g.Secret.VolumeLabel})
				return d, append(problems, required(at.Child("secretName"), g.Secret.SecretName)...)
			},
			pod: func(g *kubevirt.Volume) PodVolume {
				return PodVolume{Source: &corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
					SecretName: g.Secret.SecretName, Optional: g.Secret.Optional,
				}}}
			},
			rows: []fields.Row{fields.At("secretName", fields.Subdomain), fields.At("optional", fields.Boolean), label},
		},
		{
			Source: SourceDownwardAPI, Field: "downwardAPI", Needs: NeedFiles, Fixed: true, Transfer: TransferRemade, Shows: true,
			given: func(g kubevirt.Volume) bool { return g.DownwardAPI != nil },
			read:  (*volumes).downwardAPI,
			pod: func(g *kubevirt.Volume) PodVolume {
				return PodVolume{Source: &corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: g.DownwardAPI.Fields}}}
			},
			rows: []fields.Row{
				fields.At("fields", fields.List(64)),
				fields.At("fields[].path", relativePath),
				fields.At("fields[].mode", fields.Integer(0, 0o777)),
				fields.At("fields[].fieldRef.apiVersion", fields.OneOf("v1")),
				fields.At("fields[].fieldRef.fieldPath", fields.Text(512)),
				fields.At("fields[].resourceFieldRef.containerName", fields.Label),
				fields.At("fields[].resourceFieldRef.resource", fields.Text(512)),
				fields.At("fields[].resourceFieldRef.divisor", divisor),
				label,
			},
		},
		{
			Source: SourceServiceAccount, Field: "serviceAccount", Needs: NeedFiles, Fixed: true, Transfer: TransferRemade, Shows: true,
			given: func(g kubevirt.Volume) bool { return g.ServiceAccount != nil },
			read:  (*volumes).serviceAccount,
			pod:   accountVolume,
			rows:  []fields.Row{fields.At("serviceAccountName", fields.Subdomain)},
		},
		{
			Source: SourceSysprep, Field: "sysprep", Needs: NeedFiles, Fixed: true, Transfer: TransferRemade,
			given: func(g kubevirt.Volume) bool { return g.Sysprep != nil },
			read:  (*volumes).sysprep,
			pod:   sysprepVolume,
			rows:  []fields.Row{fields.At("configMap.name", fields.Subdomain), fields.At("secret.name", fields.Subdomain)},
		},
		{
			Source: SourceMetrics, Field: "downwardMetrics", Fixed: true, Transfer: TransferRemade,
			given: func(g kubevirt.Volume) bool { return g.DownwardMetrics != nil },
			read: func(*volumes, *field.Path, kubevirt.Volume) (Disk, field.ErrorList) {
				return Disk{Source: SourceMetrics, ReadOnly: true}, nil
			},
			rows: []fields.Row{fields.At("", fields.Object)},
		},
		{
			Source: SourceContainerPath, Field: "containerPath", Fixed: true, Shows: true, FilesOnly: true,
			given: func(g kubevirt.Volume) bool { return g.ContainerPath != nil },
			read:  (*volumes).containerPath,
			rows:  []fields.Row{fields.At("path", imagePath), fields.At("readOnly", fields.Only(true))},
		},
		{
			// The VM's node writes to the PVC, which the VM's pod does not have.
			Source: SourceMemoryDump, Field: "memoryDump", Needs: NeedVolume, FilesOnly: true,
			given: func(g kubevirt.Volume) bool { return g.MemoryDump != nil },
			read: func(_ *volumes, at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList) {
				return Disk{Source: SourceMemoryDump}, required(at.Child("claimName"), g.MemoryDump.ClaimName)
			},
			pod: func(g *kubevirt.Volume) PodVolume {
				return PodVolume{Source: &corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: g.MemoryDump.ClaimName}}}
			},
			podRows: []fields.Row{
				fields.At("claimName", fields.Subdomain),
				fields.At("hotpluggable", fields.Boolean),
				// As with KubeVirt it changes nothing: a dump is written.
				fields.At("readOnly", fields.Boolean),
			},
		},
	}
}

// files reads a disk whose files the container mounts at a path that ends in the
// volume's name.
func (v *volumes) files(at *field.Path, name string, d Disk) (Disk, field.ErrorList) {
	d.Label = cmp.Or(d.Label, defaultLabel)
	if v.mounts == nil {
		return d, nil
	}
	m, ok := v.mounts.find(name)
	if !ok || m.files == "" {
		return d, field.ErrorList{refused(at, "its files are not mounted; mount them at a path that ends in /%s", excerpt(name))}
	}
	d.Host = m.files
	return d, nil
}

func (v *volumes) downwardAPI(at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList) {
	d, problems := v.files(at, g.Name, Disk{Source: SourceDownwardAPI, Label: g.DownwardAPI.VolumeLabel})
	at = at.Child("fields")
	if len(g.DownwardAPI.Fields) == 0 {
		problems = append(problems, field.Required(at, ""))
	}
	paths := map[string]bool{}
	for i, f := range g.DownwardAPI.Fields {
		at := at.Index(i)
		problems = append(problems, required(at.Child("path"), f.Path)...)
		if paths[f.Path] {
			problems = append(problems, field.Duplicate(at.Child("path"), f.Path))
		}
		paths[f.Path] = true
		problems = append(problems, oneOf(at, "fieldRef", f.FieldRef != nil, "resourceFieldRef", f.ResourceFieldRef != nil)...)
	}
	return d, problems
}

func (v *volumes) serviceAccount(at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList) {
	if v.of(SourceServiceAccount) != nil {
		return Disk{}, field.ErrorList{refused(at, "a pod has one service account; use one such volume")}
	}
	d, problems := v.files(at, g.Name, Disk{Source: SourceServiceAccount})
	return d, append(problems, required(at.Child("serviceAccountName"), g.ServiceAccount.ServiceAccountName)...)
}

// accountVolume are the files that Kubernetes mounts into a container for a service
// account.
func accountVolume(g *kubevirt.Volume) PodVolume {
	// The API server lets tokens of this lifetime, in seconds, be used for a year: programs
	// of the past read their token once, as a guest does. They end with the pod.
	expiration := int64(3607)
	return PodVolume{
		ServiceAccount: g.ServiceAccount.ServiceAccountName,
		Source: &corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &expiration}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		}}},
	}
}

func (v *volumes) sysprep(at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList) {
	d, problems := v.files(at, g.Name, Disk{Source: SourceSysprep, Label: sysprepLabel})
	s := g.Sysprep
	problems = append(problems, oneOf(at, "configMap", s.ConfigMap != nil, "secret", s.Secret != nil)...)
	if s.ConfigMap != nil {
		problems = append(problems, required(at.Child("configMap", "name"), s.ConfigMap.Name)...)
	}
	if s.Secret != nil {
		problems = append(problems, required(at.Child("secret", "name"), s.Secret.Name)...)
	}
	return d, problems
}

func sysprepVolume(g *kubevirt.Volume) PodVolume {
	var source corev1.VolumeSource
	switch s := g.Sysprep; {
	case s.ConfigMap != nil:
		source.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: *s.ConfigMap}
	case s.Secret != nil:
		source.Secret = &corev1.SecretVolumeSource{SecretName: s.Secret.Name}
	default:
		return PodVolume{}
	}
	return PodVolume{Source: &source}
}

func required(at *field.Path, value string) field.ErrorList {
	if value != "" {
		return nil
	}
	return field.ErrorList{field.Required(at, "")}
}

// oneOf returns the problem of two fields of which one must be given.
func oneOf(at *field.Path, first string, hasFirst bool, second string, hasSecond bool) field.ErrorList {
	switch {
	case hasFirst && hasSecond:
		return field.ErrorList{refused(at, "%s and %s: use one of them", first, second)}
	case !hasFirst && !hasSecond:
		return field.ErrorList{field.Required(at, first+" or "+second)}
	}
	return nil
}

// volumeLabel takes a label that ISO 9660 has room for.
var volumeLabel = fields.Match(`[!-~]([ -~]*[!-~])?`, 32)

// relativePath takes the path of a file in a volume.
var relativePath = fields.String(func(at *field.Path, s string) *field.Error {
	if len(s) > 253 || path.IsAbs(s) || path.Clean(s) != s || strings.HasPrefix(s, "..") {
		return invalid(at, s, "must be a relative path of at most 253 characters, without . and ..")
	}
	return nil
})

// divisor takes the unit of a resource. 0, which the API's own encoder writes, is
// Kubernetes' default.
func divisor(at *field.Path, value any) *field.Error {
	if n, ok := value.(int64); ok {
		value = fmt.Sprint(n)
	}
	return fields.Match(`0|1([mkMGTPE]|[KMGTPE]i)?`, 3)(at, value)
}

package vmspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// MountedSecret is a Secret that the VM's container mounts.
type MountedSecret struct {
	Name string `json:"name"`
	// Folder is the folder of the node in which the kubelet keeps the Secret's files.
	Folder string `json:"folder"`
}

// Credential is a Secret whose content the guest's agent sets in the guest.
type Credential struct {
	Secret MountedSecret `json:"secret"`
	// Users receive the SSH keys in the Secret's files. Without users each file holds
	// the password of the user of its name.
	Users []string `json:"users,omitempty"`
}

// maxCredentials bounds access credentials, and the users of one.
const maxCredentials = 16

func credentialRows() []fields.Row {
	const keys, password = "accessCredentials[].sshPublicKey.", "accessCredentials[].userPassword."
	return []fields.Row{
		fields.At("accessCredentials", fields.List(maxCredentials)),
		fields.At(keys+"source.secret.secretName", fields.Subdomain),
		fields.At(keys+"propagationMethod.configDrive", fields.Object),
		fields.At(keys+"propagationMethod.noCloud", fields.Object),
		fields.At(keys+"propagationMethod.qemuGuestAgent.users", fields.List(maxCredentials)),
		fields.At(keys+"propagationMethod.qemuGuestAgent.users[]", userName),
		fields.At(password+"source.secret.secretName", fields.Subdomain),
		fields.At(password+"propagationMethod.qemuGuestAgent", fields.Object),
	}
}

// userName takes the name of a guest's user.
var userName = fields.Match(`[A-Za-z0-9_][A-Za-z0-9_.@$-]*`, fields.MaxLabel)

// credentialName is the name of the pod's volume with a credential's Secret, by the
// credential's place in the list.
func credentialName(i int) string { return fmt.Sprintf("access-credential-%d", i) }

// CredentialVolumes returns what a pod must have for a VMI's access credentials. The
// kubelet reads the Secrets: the controller may not.
func CredentialVolumes(given []kubevirt.AccessCredential) []PodVolume {
	var all []PodVolume
	for i, g := range given {
		all = append(all, PodVolume{Name: credentialName(i), Source: &corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: credentialSecret(g)},
		}})
	}
	return all
}

// credentialSecret returns the name of a credential's Secret; empty if it has none.
func credentialSecret(g kubevirt.AccessCredential) string {
	var source *kubevirt.AccessCredentialSecretSource
	switch {
	case g.SSHPublicKey != nil:
		source = g.SSHPublicKey.Source.Secret
	case g.UserPassword != nil:
		source = g.UserPassword.Source.Secret
	}
	if source == nil {
		return ""
	}
	return source.SecretName
}

// credentials are a VMI's access credentials.
type credentials struct {
	seeded  []MountedSecret // with keys for the seed
	byAgent []Credential
}

func readCredentials(at *field.Path, given []kubevirt.AccessCredential, v *volumes) (credentials, field.ErrorList) {
	var all credentials
	var problems field.ErrorList
	for i, g := range given {
		at := at.Index(i)
		secret, p := v.credential(at, i, credentialSecret(g))
		problems = append(problems, p...)
		problems = append(problems, oneOf(at, "sshPublicKey", g.SSHPublicKey != nil, "userPassword", g.UserPassword != nil)...)
		switch {
		case g.SSHPublicKey != nil:
			at := at.Child("sshPublicKey")
			problems = append(problems, required(at.Child("source", "secret", "secretName"), secret.Name)...)
			method := g.SSHPublicKey.PropagationMethod
			problems = append(problems, v.propagation(at.Child("propagationMethod"), method)...)
			if method.QemuGuestAgent == nil {
				all.seeded = append(all.seeded, secret)
			} else {
				all.byAgent = append(all.byAgent, Credential{Secret: secret, Users: method.QemuGuestAgent.Users})
			}
		case g.UserPassword != nil:
			at := at.Child("userPassword")
			problems = append(problems, required(at.Child("source", "secret", "secretName"), secret.Name)...)
			if g.UserPassword.PropagationMethod.QemuGuestAgent == nil {
				problems = append(problems, field.Required(at.Child("propagationMethod", "qemuGuestAgent"), ""))
			}
			all.byAgent = append(all.byAgent, Credential{Secret: secret})
		}
	}
	return all, problems
}

// credential finds a credential's Secret among the container's mounts.
func (v *volumes) credential(at *field.Path, i int, secret string) (MountedSecret, field.ErrorList) {
	found, name := MountedSecret{Name: secret}, credentialName(i)
	if o := v.find(name); o != nil {
		return found, field.ErrorList{refused(o.at, "the volume of %s has the name %s, too; rename this one", at, name)}
	}
	if v.mounts == nil {
		return found, nil
	}
	m, ok := v.mounts.find(name)
	if !ok || m.files == "" {
		return found, field.ErrorList{refused(at, "its Secret is not mounted; mount it at a path that ends in /%s", name)}
	}
	found.Folder = m.files
	return found, nil
}

// propagation returns the problems of the way in which SSH keys reach the guest.
func (v *volumes) propagation(at *field.Path, m kubevirt.SSHPublicKeyAccessCredentialPropagationMethod) field.ErrorList {
	methods := 0
	for _, given := range []bool{m.ConfigDrive != nil, m.NoCloud != nil, m.QemuGuestAgent != nil} {
		if given {
			methods++
		}
	}
	of := func(s Source) bool { return v.cloudInit != nil && v.cloudInit.source == s }
	switch {
	case methods == 0:
		return field.ErrorList{field.Required(at, "configDrive, noCloud or qemuGuestAgent")}
	case methods > 1:
		return field.ErrorList{refused(at, "use one of configDrive, noCloud and qemuGuestAgent")}
	case m.NoCloud != nil && !of(SourceSeed):
		return field.ErrorList{refused(at, "noCloud requires a volume of kind cloudInitNoCloud; add one")}
	case m.ConfigDrive != nil && !of(SourceConfigDrive):
		return field.ErrorList{refused(at, "configDrive requires a volume of kind cloudInitConfigDrive; add one")}
	case m.QemuGuestAgent != nil && len(m.QemuGuestAgent.Users) == 0:
		return field.ErrorList{field.Required(at.Child("qemuGuestAgent", "users"), "the users that the keys are for")}
	}
	return nil
}

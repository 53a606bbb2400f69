package vmspec

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// userDataName is the field of the user data, which alone may be compressed.
const userDataName = "userData"

// maxUserData is the maximum size of compressed user data, in bytes, without compression.
const maxUserData = 1 << 20

// cloudInit is the content of a VMI's cloud-init volume.
type cloudInit struct {
	source        Source
	userData      string
	networkConfig string
	// userDataSecret and networkSecret are true for a part that is in a Secret instead.
	// The Secret's files are in folder, which is "" while the container is unknown.
	userDataSecret, networkSecret bool
	folder                        string
}

// cloudInitOf returns a volume's fields, which both data sources have.
func cloudInitOf(g kubevirt.Volume) *kubevirt.CloudInitNoCloudSource {
	if g.CloudInitNoCloud == nil {
		return (*kubevirt.CloudInitNoCloudSource)(g.CloudInitConfigDrive)
	}
	return g.CloudInitNoCloud
}

func readCloudInit(
	at *field.Path, source *kubevirt.CloudInitNoCloudSource,
) (*cloudInit, field.ErrorList) {
	userData, problems := plainOr64(at, userDataName, source.UserData, source.UserDataBase64)
	network, p := plainOr64(at, "networkData", source.NetworkData, source.NetworkDataBase64)
	problems = append(problems, p...)
	c := &cloudInit{userData: userData, networkConfig: network}
	c.userDataSecret, p = secret(at.Child("secretRef"), source.UserDataSecretRef,
		userDataName, source.UserData+source.UserDataBase64)
	problems = append(problems, p...)
	c.networkSecret, p = secret(at.Child("networkDataSecretRef"), source.NetworkDataSecretRef,
		"networkData", source.NetworkData+source.NetworkDataBase64)
	return c, append(problems, p...)
}

// secret reports whether a part is in a Secret and not set by an annotation as
// well.
func secret(at *field.Path, ref *corev1.LocalObjectReference, name, other string) (bool, field.ErrorList) {
	switch {
	case ref == nil:
		return false, nil
	case ref.Name == "":
		return true, field.ErrorList{field.Required(at.Child("name"), "")}
	case other != "":
		return true, field.ErrorList{refused(at, "%s is given too; use one of them", name)}
	}
	return true, nil
}

// find looks for the Secret's files among the container's mounts, which are nil while the
// container is unknown.
func (c *cloudInit) find(at *field.Path, name string, mounts *mountsOf) field.ErrorList {
	if mounts == nil {
		return nil
	}
	m, ok := mounts.find(name)
	if !ok || m.files == "" {
		return field.ErrorList{refused(at, "its Secret is not mounted; mount it at a path that ends in /%s", excerpt(name))}
	}
	c.folder = m.files
	return nil
}

func plainOr64(at *field.Path, name, plain, encoded string) (string, field.ErrorList) {
	if encoded == "" {
		return plain, nil
	}
	at = at.Child(name + "Base64")
	if plain != "" {
		return "", field.ErrorList{refused(at, "%s is given too; use one of them", name)}
	}
	// The error does not show the value: users who may read a pod's events may not know
	// its passwords.
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", field.ErrorList{invalid(at, field.OmitValueType{}, "must be base64: %s", err)}
	}
	if name == userDataName && bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
		if content, err = gunzip(content); err != nil {
			return "", field.ErrorList{invalid(at, field.OmitValueType{}, "gzip: %s", err)}
		}
	}
	if !utf8.Valid(content) {
		return "", field.ErrorList{invalid(at, field.OmitValueType{}, "must hold UTF-8 text, not binary data")}
	}
	return string(content), nil
}

// gunzip returns the text of user data that Terraform and others have compressed, as cloud-init reads it.
func gunzip(content []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxUserData+1))
	if err == nil && len(text) > maxUserData {
		err = fmt.Errorf("more than %d bytes without compression; give the user data in a Secret", maxUserData)
	}
	return text, err
}

// withCloudInit adds a volume's content to that of the annotations. Each part
// can be in one of the two places.
func (w wishes) withCloudInit(c *cloudInit) (wishes, error) {
	if c == nil {
		return w, nil
	}
	w.seeded = true
	for _, part := range []struct {
		key        string
		have       *string
		fromVolume string
		isSecret   bool
	}{
		{AnnotationUserData, &w.userData, c.userData, c.userDataSecret},
		{AnnotationNetworkConfig, &w.networkConfig, c.networkConfig, c.networkSecret},
	} {
		if *part.have != "" && (part.fromVolume != "" || part.isSecret) {
			return w, fmt.Errorf("%s: the VMI's %s volume has this too; use one of them",
				part.key, c.source.Kind().Field)
		}
		*part.have += part.fromVolume
	}
	return w, nil
}

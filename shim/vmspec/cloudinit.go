package vmspec

import (
	"encoding/base64"
	"fmt"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// cloudInit is the content of a VMI's cloudInitNoCloud volume.
type cloudInit struct {
	userData      string
	networkConfig string
}

func readCloudInit(
	at *field.Path, source *kubevirt.CloudInitNoCloudSource,
) (*cloudInit, field.ErrorList) {
	userData, problems := plainOr64(at, "userData", source.UserData, source.UserDataBase64)
	network, p := plainOr64(at, "networkData", source.NetworkData, source.NetworkDataBase64)
	return &cloudInit{userData: userData, networkConfig: network}, append(problems, p...)
}

func plainOr64(at *field.Path, name, plain, encoded string) (string, field.ErrorList) {
	if encoded == "" {
		return plain, nil
	}
	at = at.Child(name + "Base64")
	if plain != "" {
		return "", field.ErrorList{refused(at, "%s is given too; use one of them", name)}
	}
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", field.ErrorList{invalid(at, encoded, "%s", err)}
	}
	if !utf8.Valid(content) {
		return "", field.ErrorList{invalid(at, encoded, "must hold UTF-8 text, not binary data")}
	}
	return string(content), nil
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
	}{
		{AnnotationUserData, &w.userData, c.userData},
		{AnnotationNetworkConfig, &w.networkConfig, c.networkConfig},
	} {
		if *part.have != "" && part.fromVolume != "" {
			return w, fmt.Errorf("%s: the VMI's cloudInitNoCloud volume has this too; use one of them",
				part.key)
		}
		*part.have += part.fromVolume
	}
	return w, nil
}

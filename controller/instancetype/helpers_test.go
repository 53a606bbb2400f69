package instancetype_test

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	api "kubevirt.io/api/instancetype/v1beta1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

type (
	spec        = api.VirtualMachineInstancetypeSpec
	preferences = api.VirtualMachinePreferenceSpec
)

func num(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// sentences are problems in words, a line each.
func sentences(problems field.ErrorList) string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, fields.Sentence(p))
	}
	return strings.Join(lines, "\n")
}

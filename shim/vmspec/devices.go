package vmspec

import (
	"cmp"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// devices reads what a VMI has beside disks and network cards into s.
func (s *Spec) devices(at *field.Path, d kubevirt.Devices) field.ErrorList {
	s.RNG = d.Rng != nil
	s.Balloon = isOr(d.AutoattachMemBalloon, true)
	s.Display = isOr(d.AutoattachGraphicsDevice, false) // KubeVirt's default is true
	s.NoSerial = !isOr(d.AutoattachSerialConsole, true)
	s.TPM = d.TPM != nil && isOr(d.TPM.Enabled, true)
	problems := s.inputs(at.Child("inputs"), d)
	return append(problems, s.watchdog(at.Child("watchdog"), d.Watchdog)...)
}

// defaultInput is KubeVirt's name of the device that autoattachInputDevice adds.
const defaultInput = "default-0"

// inputs reads the input devices. As with KubeVirt a type or bus that is not given
// is a tablet on USB, and autoattachInputDevice adds one to a VMI without any.
func (s *Spec) inputs(at *field.Path, d kubevirt.Devices) field.ErrorList {
	var problems field.ErrorList
	names := map[string]bool{}
	for i, given := range d.Inputs {
		switch {
		case given.Name == "":
			problems = append(problems, field.Required(at.Index(i).Child("name"), ""))
		case names[given.Name]:
			problems = append(problems, field.Duplicate(at.Index(i).Child("name"), given.Name))
		}
		names[given.Name] = true
		s.Inputs = append(s.Inputs, Input{Name: given.Name, Bus: string(cmp.Or(given.Bus, kubevirt.InputBusUSB))})
	}
	if len(s.Inputs) == 0 && isOr(d.AutoattachInputDevice, false) {
		s.Inputs = []Input{{Name: defaultInput, Bus: string(kubevirt.InputBusUSB)}}
	}
	return problems
}

// watchdog reads the watchdog. KubeVirt's default is to reset the guest.
func (s *Spec) watchdog(at *field.Path, given *kubevirt.Watchdog) field.ErrorList {
	switch {
	case given == nil:
		return nil
	case given.Name == "":
		return field.ErrorList{field.Required(at.Child("name"), "")}
	case given.I6300ESB == nil:
		return field.ErrorList{field.Required(at.Child("i6300esb"), "the only model")}
	}
	s.Watchdog = cmp.Or(WatchdogAction(given.I6300ESB.Action), WatchdogReset)
	return nil
}

// isOr returns a flag, or its default if it is not given.
func isOr(flag *bool, otherwise bool) bool {
	if flag == nil {
		return otherwise
	}
	return *flag
}

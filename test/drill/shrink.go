package drill

// Shrink looks for few faults that fail as well, by leaving out halves, then quarters, and so on, for as long as it may try. What depends on
// the moment may not fail each time: then more is kept than has to be.
func Shrink(faults []Fault, tries int, fails func([]Fault) (bool, error)) ([]Fault, error) {
	for parts := 2; len(faults) > 1 && tries > 0; {
		size, smaller := (len(faults)+parts-1)/parts, false
		for from := 0; from < len(faults) && tries > 0; from += size {
			rest := append(append([]Fault{}, faults[:from]...), faults[min(from+size, len(faults)):]...)
			if len(rest) == 0 {
				continue
			}
			tries--
			failed, err := fails(rest)
			if err != nil {
				return faults, err
			}
			if failed {
				faults, smaller = rest, true
				break
			}
		}
		switch {
		case smaller:
			parts = max(parts-1, 2)
		case size == 1:
			return faults, nil
		default:
			parts = min(parts*2, len(faults))
		}
	}
	return faults, nil
}

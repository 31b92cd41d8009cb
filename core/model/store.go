package model

import "hash/maphash"

// store numbers states from 0 and knows them again. It is a hash table with open addressing, exact, and it never moves a state.
type store[S comparable] struct {
	seed   maphash.Seed
	count  int
	chunks []*[chunk]S
	places []place
}

// place is a place of the table: a state's number plus one, and a part of its hash, which spares most comparisons.
type place struct {
	number, hash uint32
}

const chunk = 1 << 12

func newStore[S comparable]() store[S] {
	return store[S]{seed: maphash.MakeSeed(), places: make([]place, 1<<16)}
}

// at returns a state by its number.
func (s *store[S]) at(n uint32) *S { return &s.chunks[n/chunk][n%chunk] }

// add returns the number of a state, and whether it is seen for the first time.
func (s *store[S]) add(st *S) (number uint32, isNew bool) {
	if s.count*2 >= len(s.places) {
		s.grow()
	}
	hash := uint32(maphash.Comparable(s.seed, *st))
	mask := uint32(len(s.places) - 1)
	for at := hash & mask; ; at = (at + 1) & mask {
		switch p := s.places[at]; {
		case p.number == 0:
			if s.count%chunk == 0 {
				s.chunks = append(s.chunks, new([chunk]S))
			}
			number = uint32(s.count)
			s.count++
			*s.at(number) = *st
			s.places[at] = place{number + 1, hash}
			return number, true
		case p.hash == hash && *s.at(p.number - 1) == *st:
			return p.number - 1, false
		}
	}
}

// grow doubles the table.
func (s *store[S]) grow() {
	old := s.places
	s.places = make([]place, 2*len(old))
	mask := uint32(len(s.places) - 1)
	for _, p := range old {
		if p.number == 0 {
			continue
		}
		at := p.hash & mask
		for s.places[at].number != 0 {
			at = (at + 1) & mask
		}
		s.places[at] = p
	}
}

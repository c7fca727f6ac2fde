break scale(long)
break scale(Point const&)
break largest<double>
tbreak largest<long>
tbreak moved
tbreak objects.cc:60
info breakpoints
continue
p values
p values._M_impl._M_finish - values._M_impl._M_start
p *values._M_impl._M_start@3
finish
continue
bt
info args
finish
continue
info args
finish
continue
bt
info frame
info locals
up
continue
bt
finish
continue
bt
p point
p point.x + point.z
finish
continue
up
down
frame 1
frame function scale
delete
break Square::area
break Rectangle::area
continue
bt
p *this
p *(Shape *) this
set print object on
p *(Shape *) this
info vtbl this
p side + this->side
up
info locals
down
finish
continue
p width * height
delete
p this->area()
catch throw
catch catch
continue
bt
up 2
info args
info locals
continue
bt
up
info locals
p most
p half
p table._M_t._M_impl._M_node_count
p values._M_impl._M_start[1]
p shapes._M_impl._M_finish - shapes._M_impl._M_start
p level
delete
tbreak objects.cc:97
continue
p error
info locals
p scale(21)
p scale(point)
set var level = 7
next
next
continue

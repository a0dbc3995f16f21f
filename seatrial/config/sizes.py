"""Message and file sizes in files: a whole number of bytes, or a text such as 64K."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from seatrial.model.sizes import parse_size

ByteSize = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=int | str), Field(gt=0, le=1 << 40)]

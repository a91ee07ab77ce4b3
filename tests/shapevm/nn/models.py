"""Models of shapevm.nn with the names of parameters of torchvision's and transformers' models."""

from __future__ import annotations

from typing import Any

from shapevm import nn


class Mlp(nn.Module):
    """Two linear layers."""

    def __init__(self) -> None:
        self.up, self.down = nn.Linear(6, 16), nn.Linear(16, 3, bias=False)

    def forward(self, x: Any) -> nn.Tensor:
        return self.down(nn.gelu(self.up(x)))


class BasicBlock(nn.Module):
    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.downsample: nn.Module | None = None
        if stride != 1 or n_in != n_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out)
            )

    def forward(self, x: Any) -> nn.Tensor:
        made = self.bn2(self.conv2(nn.relu(self.bn1(self.conv1(x)))))
        return nn.relu(made + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """torchvision's resnet18."""

    def __init__(self, width: int = 64, n_classes: int = 1000) -> None:
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.maxpool, self.avgpool = nn.MaxPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(1)
        self.layer1 = self._layer(width, width, 1)
        self.layer2 = self._layer(width, 2 * width, 2)
        self.layer3 = self._layer(2 * width, 4 * width, 2)
        self.layer4 = self._layer(4 * width, 8 * width, 2)
        self.fc = nn.Linear(8 * width, n_classes)

    @staticmethod
    def _layer(n_in: int, n_out: int, stride: int) -> nn.Module:
        return nn.Sequential(BasicBlock(n_in, n_out, stride), BasicBlock(n_out, n_out, 1))

    def forward(self, x: Any) -> nn.Tensor:
        x = self.maxpool(nn.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


class Encoder(nn.Module):
    """Layers of torch.nn.TransformerEncoderLayer(norm_first=False, activation="gelu")."""

    def __init__(self, width: int, n_heads: int, n_layers: int, n_rows: int) -> None:
        self.words = nn.Embedding(n_rows, width)
        self.layers = nn.ModuleList([EncoderLayer(width, n_heads) for _ in range(n_layers)])

    def forward(self, ids: Any, mask: Any) -> nn.Tensor:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, mask[:, None, None, :])
        return x


class EncoderLayer(nn.Module):
    def __init__(self, width: int, n_heads: int) -> None:
        self.self_attn = nn.MultiheadAttention(width, n_heads)
        self.linear1, self.linear2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Any, mask: Any) -> nn.Tensor:
        x = self.norm1(x + self.self_attn(x, mask))
        return self.norm2(x + self.linear2(nn.gelu(self.linear1(x))))


class Llama(nn.Module):
    """transformers' LlamaForCausalLM for one sequence: a call takes any number of new tokens."""

    def __init__(self, config: Any, length: int) -> None:
        self.model = LlamaModel(config, length)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, ids: Any, positions: Any) -> dict[str, nn.Tensor]:
        logits = self.lm_head(self.model(ids, positions))
        return {"logits": logits, "next": nn.argmax(logits[:, -1], -1)}

    def decode(self, token: Any, position: Any) -> nn.Tensor:
        """Return the token that follows `token` i64[1] at `position` i64[1]."""
        return nn.argmax(self.lm_head(self.model(token[None, :], position))[:, -1], -1)


class LlamaModel(nn.Module):
    def __init__(self, config: Any, length: int) -> None:
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([LlamaLayer(config, length) for _ in range(config.num_hidden_layers)])
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, ids: Any, positions: Any) -> nn.Tensor:
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, positions)
        return self.norm(x)


class LlamaLayer(nn.Module):
    def __init__(self, config: Any, length: int) -> None:
        self.self_attn, self.mlp = LlamaAttention(config, length), LlamaMlp(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Any, positions: Any) -> nn.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), positions)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaAttention(nn.Module):
    def __init__(self, config: Any, length: int) -> None:
        width, self.head = config.hidden_size, config.hidden_size // config.num_attention_heads
        n_keys = config.num_key_value_heads
        self.q_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(width, n_keys * self.head, bias=False) for _ in range(2))
        self.cache = nn.KVCache(1, n_keys, length, self.head)
        self.length = length

    def forward(self, x: Any, positions: Any) -> nn.Tensor:
        batch, new, width = x.shape
        query, key, value = (
            layer(x).reshape(batch, new, -1, self.head).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        keys, values = self.cache(nn.rope(key, positions), value, positions)
        mask = nn.arange(self.length)[None, :] <= positions[:, None]
        read = nn.scaled_dot_product_attention(nn.rope(query, positions), keys, values, mask, enable_gqa=True)
        return self.o_proj(read.transpose(1, 2).reshape(batch, new, width))


class LlamaMlp(nn.Module):
    def __init__(self, config: Any) -> None:
        width, inner = config.hidden_size, config.intermediate_size
        self.gate_proj, self.up_proj = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Any) -> nn.Tensor:
        return self.down_proj(nn.silu(self.gate_proj(x)) * self.up_proj(x))


class Bert(nn.Module):
    """transformers' BertModel(add_pooling_layer=False)."""

    def __init__(self, config: Any) -> None:
        self.embeddings, self.encoder = BertEmbeddings(config), nn.Module()
        layers = [BertLayer(config) for _ in range(config.num_hidden_layers)]
        self.encoder.layer = nn.ModuleList(layers)  # type: ignore[attr-defined]

    def forward(self, ids: Any, mask: Any) -> nn.Tensor:
        x = self.embeddings(ids)
        for layer in self.encoder.layer:  # type: ignore[attr-defined]
            x = layer(x, mask[:, None, None, :])
        return x


class BertEmbeddings(nn.Module):
    def __init__(self, config: Any) -> None:
        width = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, width)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, config.layer_norm_eps)

    def forward(self, ids: Any) -> nn.Tensor:
        x = self.word_embeddings(ids) + self.token_type_embeddings.weight[0]
        return self.LayerNorm(x + self.position_embeddings.weight[: ids.shape[1]])


class BertOutput(nn.Module):
    """A linear layer whose result is added to what came before, and normalised."""

    def __init__(self, n_in: int, config: Any) -> None:
        self.dense = nn.Linear(n_in, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, x: Any, before: Any) -> nn.Tensor:
        return self.LayerNorm(self.dense(x) + before)


class BertSelfAttention(nn.Module):
    def __init__(self, config: Any) -> None:
        width, self.n_heads = config.hidden_size, config.num_attention_heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Any, mask: Any) -> nn.Tensor:
        batch, length, width = x.shape
        query, key, value = (
            layer(x).reshape(batch, length, self.n_heads, width // self.n_heads).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        read = nn.scaled_dot_product_attention(query, key, value, mask)
        return read.transpose(1, 2).reshape(batch, length, width)


class BertLayer(nn.Module):
    def __init__(self, config: Any) -> None:
        self.attention, self.intermediate = nn.Module(), nn.Module()
        vars(self.attention)["self"] = BertSelfAttention(config)
        vars(self.attention)["output"] = BertOutput(config.hidden_size, config)
        vars(self.intermediate)["dense"] = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output = BertOutput(config.intermediate_size, config)

    def forward(self, x: Any, mask: Any) -> nn.Tensor:
        attention = vars(self.attention)
        x = attention["output"](attention["self"](x, mask), x)
        return self.output(nn.gelu(vars(self.intermediate)["dense"](x)), x)
